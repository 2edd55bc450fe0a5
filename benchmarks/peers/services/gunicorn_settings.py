"""What Gunicorn is told in every environment."""

control_socket_disable = True


def post_worker_init(_worker):
    print("worker ready", flush=True)
