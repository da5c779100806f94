"""libconic.so, as conic.h declares it."""

import ctypes
import ctypes.util
import os
from ctypes import POINTER, c_char, c_char_p, c_int, c_int64, c_size_t, c_uint, c_uint8, c_uint32, c_uint64, c_void_p

# The number of the soname: another one has other functions.
SONAME = "libconic.so.0"


class Options(ctypes.Structure):
    """struct conic_options"""

    _fields_ = [
        ("size", c_size_t),
        ("socket", c_char_p),
        ("name", c_char_p),
        ("network", c_char_p),
        ("queues", c_uint32),
        ("descriptors", c_uint32),
        ("small_buffers", c_uint32),
        ("large_buffers", c_uint32),
        ("jumbo_buffers", c_uint32),
        ("patience_ms", c_uint32),
        ("mac", c_uint8 * 6),
        ("has_mac", c_uint8),
        ("reconnect", c_uint8),
        ("offloads", c_uint32),
        ("promiscuous", c_uint8),
        ("reserved", c_uint8 * 3),
    ]


class Info(ctypes.Structure):
    """struct conic_info"""

    _fields_ = [
        ("session", c_uint64),
        ("reconnects", c_uint64),
        ("queues", c_uint32),
        ("longest_frame", c_uint32),
        ("link", c_uint32),
        ("mac", c_uint8 * 6),
        ("promiscuous", c_uint8),
        ("reserved", c_uint8 * 5),
        ("network", c_char * 40),
    ]


class Buf(ctypes.Structure):
    """struct conic_buf"""

    _fields_ = [
        ("data", c_void_p),
        ("length", c_uint32),
        ("capacity", c_uint32),
        ("flags", c_uint32),
        ("reserved", c_uint32),
        ("metadata", c_uint64),
    ]


class Counters(ctypes.Structure):
    """struct conic_counters"""

    _fields_ = [
        (name, c_uint64)
        for name in (
            "sent_frames",
            "sent_bytes",
            "received_frames",
            "received_bytes",
            "no_buffer",
            "not_taken",
            "refused",
            "ring_faults",
            "freed_twice",
            "copied",
        )
    ]


STRUCTURES = {
    "conic_options": Options,
    "conic_info": Info,
    "conic_buf": Buf,
    "conic_counters": Counters,
}

FUNCTIONS = {
    "conic_options_init": (c_int, [POINTER(Options), c_size_t]),
    "conic_attach": (c_int, [POINTER(Options), POINTER(c_void_p), c_char_p, c_size_t]),
    "conic_detach": (None, [c_void_p]),
    "conic_get_queue": (c_void_p, [c_void_p, c_uint]),
    "conic_link": (c_int, [c_void_p]),
    "conic_get_info": (c_int, [c_void_p, POINTER(Info), c_size_t]),
    "conic_set_mac": (c_int, [c_void_p, c_char_p]),
    "conic_set_promiscuous": (c_int, [c_void_p, c_int]),
    "conic_detached": (c_int, [c_void_p, c_char_p, c_size_t]),
    "conic_buf_alloc": (c_int, [c_void_p, c_uint32, POINTER(Buf), c_uint]),
    "conic_buf_free": (c_int, [c_void_p, POINTER(Buf), c_uint]),
    "conic_tx_burst": (c_int, [c_void_p, POINTER(Buf), c_uint]),
    "conic_rx_burst": (c_int, [c_void_p, POINTER(Buf), c_uint]),
    "conic_wait": (c_int, [c_void_p, c_int64]),
    "conic_get_fd": (c_int, [c_void_p]),
    "conic_arm": (c_int, [c_void_p]),
    "conic_disarm": (c_int, [c_void_p]),
    "conic_get_counters": (c_int, [c_void_p, POINTER(Counters), c_size_t]),
    "conic_strerror": (c_char_p, [c_int]),
}


class Error(Exception):
    """What went wrong; `status` is one of enum conic_error."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


def _open():
    path = os.environ.get("CONIC_LIBRARY")
    try:
        library = ctypes.CDLL(path or SONAME)
    except OSError as error:
        raise ImportError(
            f"{path or SONAME} cannot be loaded ({error}): install conic, or set LD_LIBRARY_PATH or CONIC_LIBRARY"
        ) from error
    for name, (result, arguments) in FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


library = _open()


def check(status):
    """The number that a function returned, or the error that it is."""
    if status < 0:
        raise Error(status, library.conic_strerror(status).decode())
    return status
