"""A wall clock that is wrong, for one process and all code in it.

The monotonic clock stays right, as on a host whose wall clock is off. (libfaketime 0.9.10 shifts
both or breaks `time.sleep`.)
"""

import subprocess
from pathlib import Path

_SOURCE = r"""
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long ahead(void) {
    const char *seconds = getenv("CLOCK_AHEAD");
    return seconds ? atol(seconds) : 0;
}
int clock_gettime(clockid_t id, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, id, now);
    int is_wall = id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE;
    if (result == 0 && is_wall) now->tv_sec += ahead();
    return result;
}
int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    int result = syscall(SYS_gettimeofday, now, zone);
    now->tv_sec += ahead();
    return result;
}
time_t time(time_t *place) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (place) *place = now.tv_sec;
    return now.tv_sec;
}
"""


def wrong_clock(directory: Path, seconds: float) -> dict[str, str]:
    """Return the environment of a process whose wall clock is ahead by so many seconds."""
    source, library = directory / "clock.c", directory / "clock.so"
    source.write_text(_SOURCE)
    command = ["cc", "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True, timeout=60)
    return {"LD_PRELOAD": str(library), "CLOCK_AHEAD": str(round(seconds))}
