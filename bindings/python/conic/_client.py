"""Clients and queues."""

import ctypes
import threading
import time

from conic._library import Buf, Counters, Error, Info, Options, check, library

# Frames that one call of the library moves at most.
BURST = 32

# How long is slept between two looks, in seconds, once looking again and again has found nothing.
PAUSE = 0.0002

# Looks before the first sleep.
LOOKS = 200


def attach(
    socket=None,
    *,
    name="python",
    network=None,
    queues=1,
    descriptors=None,
    buffers=None,
    mac=None,
    patience=None,
    reconnect=True,
):
    """Attaches to the daemon that listens at `socket` (its default place if None).

    `buffers` is a triple: how many of 128, 4096 and 16384 bytes. `mac` is text such as "02:00:00:00:00:01"; the daemon chooses
    one if None. `patience` is how long each step may take, in seconds. Raises `Error` with what to do.
    """
    options = Options()
    check(library.conic_options_init(ctypes.byref(options), ctypes.sizeof(options)))
    options.socket = None if socket is None else str(socket).encode()
    options.name = name.encode()
    options.network = None if network is None else network.encode()
    options.queues = queues
    options.reconnect = int(reconnect)
    if descriptors is not None:
        options.descriptors = descriptors
    if buffers is not None:
        options.small_buffers, options.large_buffers, options.jumbo_buffers = buffers
    if patience is not None:
        options.patience_ms = max(1, round(patience * 1000))
    if mac is not None:
        options.mac[:] = _mac_of(mac)
        options.has_mac = 1
    client, why = ctypes.c_void_p(), ctypes.create_string_buffer(1024)
    status = library.conic_attach(ctypes.byref(options), ctypes.byref(client), why, len(why))
    if status < 0:
        raise Error(status, why.value.decode(errors="replace"))
    return Client(client)


def _mac_of(text):
    try:
        mac = bytes(int(part, 16) for part in text.split(":"))
    except ValueError:
        mac = b""
    if len(mac) != 6:
        raise ValueError(f"a MAC address is as 02:00:00:00:00:01, and not {text!r}")
    return mac


class Client:
    """A client of the daemon: from `attach`, ended by `close` or the end of its `with`."""

    def __init__(self, pointer):
        self._pointer = pointer
        self._closed = False
        self.queues = [Queue(self, index) for index in range(self._info().queues)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        self.close()

    def close(self):
        """Detaches; the queues are of no use any more. May be called again."""
        if self._closed:
            return
        self._closed = True
        # No queue is in the library while its lock is held here.
        locks = [queue._lock for queue in getattr(self, "queues", [])]
        for lock in locks:
            lock.acquire()
        library.conic_detach(self._pointer)
        self._pointer = None
        for lock in locks:
            lock.release()

    def _there(self):
        if self._closed:
            raise ValueError("the client was closed")
        return self._pointer

    def _info(self):
        info = Info()
        check(library.conic_get_info(self._there(), ctypes.byref(info), ctypes.sizeof(info)))
        return info

    @property
    def mac(self):
        """The client's MAC address, as text."""
        return ":".join(f"{byte:02x}" for byte in self._info().mac)

    @property
    def longest_frame(self):
        """The longest frame on the network, in bytes."""
        return self._info().longest_frame

    @property
    def network(self):
        """The network's name; empty if it is the daemon's first and was not named."""
        return self._info().network.decode()

    @property
    def link(self):
        """Whether packets flow. Asks the kernel, and attaches again if the daemon is back."""
        return check(library.conic_link(self._there())) == 1

    @property
    def detached(self):
        """Why the daemon detached the client, if it said so, or None."""
        why = ctypes.create_string_buffer(1024)
        said = check(library.conic_detached(self._there(), why, len(why)))
        return why.value.decode(errors="replace") if said else None

    @property
    def statistics(self):
        """What all queues have done together, and `reconnects`: a dict of numbers."""
        total = {"reconnects": self._info().reconnects}
        for queue in self.queues:
            for name, value in queue.statistics.items():
                total[name] = total.get(name, 0) + value
        return total

    def send(self, frames, timeout=1.0):
        """Sends on the first queue; see `Queue.send`."""
        return self.queues[0].send(frames, timeout)

    def receive(self, count=None, timeout=0.0):
        """Receives on the first queue; see `Queue.receive`."""
        return self.queues[0].receive(count, timeout)


class Queue:
    """One queue pair of a client: `client.queues[index]`."""

    def __init__(self, client, index):
        self._client = client
        self._lock = threading.Lock()
        self._pointer = library.conic_get_queue(client._there(), index)
        self.index = index

    def send(self, frames, timeout=1.0):
        """Sends one frame or several, each bytes or what `bytes` makes some of (a scapy packet), and returns how many were sent:
        fewer than there are only where there is no room, or no link, for `timeout` seconds.
        """
        if isinstance(frames, (bytes, bytearray, memoryview)) or not _is_list(frames):
            frames = [frames]
        frames = [bytes(frame) for frame in frames]
        longest = self._client.longest_frame
        for frame in frames:
            if not 1 <= len(frame) <= longest:
                raise ValueError(f"a frame on this network has 1 to {longest} bytes, and not {len(frame)}")
        sent = 0
        for _ in _rounds(timeout):
            while sent < len(frames):
                taken = self._send_some(frames[sent : sent + BURST])
                sent += taken
                if taken == 0:
                    break
            if sent == len(frames):
                break
        return sent

    def _send_some(self, frames):
        bufs, count = (Buf * len(frames))(), 0
        with self._lock:
            self._client._there()
            for frame in frames:
                # Each has a length of its own, and so a buffer of its own size.
                if check(library.conic_buf_alloc(self._pointer, len(frame), _at(bufs, count), 1)) == 0:
                    break
                ctypes.memmove(bufs[count].data, frame, len(frame))
                count += 1
            taken = library.conic_tx_burst(self._pointer, bufs, count)
            left = max(taken, 0)
            library.conic_buf_free(self._pointer, _at(bufs, left), count - left)
        return check(taken)

    def receive(self, count=None, timeout=0.0):
        """Receives frames, as a list of bytes. Waits up to `timeout` seconds for the first if `count` is None, and then takes what
        there is; otherwise waits until there are `count`, and returns fewer only after the time.
        """
        frames = []
        for _ in _rounds(timeout):
            while count is None or len(frames) < count:
                got = self._receive_some(BURST if count is None else min(BURST, count - len(frames)))
                frames += got
                if not got:
                    break
            if frames if count is None else len(frames) == count:
                break
        return frames

    def _receive_some(self, most):
        bufs, parts, frames = (Buf * most)(), [], []
        with self._lock:
            self._client._there()
            got = check(library.conic_rx_burst(self._pointer, bufs, most))
            for buf in bufs[:got]:
                parts.append(ctypes.string_at(buf.data, buf.length))
                if not buf.flags & 1:
                    frames.append(b"".join(parts))
                    parts = []
            check(library.conic_buf_free(self._pointer, bufs, got))
        return frames

    @property
    def statistics(self):
        """What the queue has done: a dict with the names of struct conic_counters."""
        counters = Counters()
        with self._lock:
            self._client._there()
            check(library.conic_get_counters(self._pointer, ctypes.byref(counters), ctypes.sizeof(counters)))
        return {name: getattr(counters, name) for name, _ in Counters._fields_}


def _is_list(frames):
    # A scapy packet is iterable too, and is one frame.
    return isinstance(frames, (list, tuple)) or hasattr(frames, "__next__")


def _at(bufs, index):
    offset = index * ctypes.sizeof(Buf)
    return ctypes.cast(ctypes.addressof(bufs) + offset, ctypes.POINTER(Buf))


def _rounds(timeout):
    """Rounds of looking: at least one, and then until the time is over, with sleeps in between."""
    until = time.monotonic() + timeout
    looks = 0
    while True:
        yield
        if time.monotonic() >= until:
            return
        looks += 1
        if looks > LOOKS:
            time.sleep(PAUSE)
