-- The keyed hash of the keyspace, by the libcrypto that nginx is linked with.

local ffi = require "ffi"

ffi.cdef [[
typedef struct evp_md_st EVP_MD;
const EVP_MD *EVP_sha256(void);
unsigned char *HMAC(const EVP_MD *kind, const void *key, int key_size,
                    const unsigned char *message, size_t size,
                    unsigned char *digest, unsigned int *digest_size);
]]

local HASH_BYTES = 16

local digest = {}

local buffer = ffi.new("unsigned char[64]")
local sha256 = ffi.C.EVP_sha256()

local function hmac(key, message)
  if ffi.C.HMAC(sha256, key, #key, message, #message, buffer, nil) == nil then
    error("libcrypto made no HMAC")
  end
  return ffi.string(buffer, 32)
end

--- Derive the key for hashes from the application's secret.
function digest.key_of(secret)
  return hmac(secret, "flask-idempotence/hash")
end

--- Return the hash of a message, 16 bytes.
function digest.hash(key, message)
  return hmac(key, message):sub(1, HASH_BYTES)
end

--- Write bytes in hexadecimal.
function digest.hex(bytes)
  return (bytes:gsub(".", function(byte)
    return ("%02x"):format(byte:byte())
  end))
end

return digest
