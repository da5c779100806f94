"""Clients and queues."""

import asyncio
import contextlib
import ctypes
import os
import select
import threading
import time

from conic._library import Buf, Counters, Error, Info, Options, check, library
from conic._metadata import LARGE, Frame, Metadata, offloads_of

# Frames that one call of the library moves at most.
BURST = 32

# Bytes of the longest buffer, and parts of the longest chain.
LARGEST = 16384
PARTS = 4

# In a part's `flags`: the packet goes on in the next.
NEXT = 1

# Nanoseconds of looking again before the first sleep.
SPIN = 50_000

# Seconds between two attempts to send where there is no room.
PAUSE = 0.0002

# Seconds of one sleep at most: another thread that receives from the same queue takes back what this one has asked for.
PIECE = 0.05


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
    promiscuous=False,
    offloads=(),
):
    """Attaches to the daemon that listens at `socket` (its default place if None).

    `buffers` is a triple: how many of 128, 4096 and 16384 bytes. `mac` is text such as "02:00:00:00:00:01"; the daemon chooses
    one if None. `patience` is how long each step may take, in seconds.

    `promiscuous` asks for frames for stations that nobody is known to have; the NIC's configuration says whether the client may.

    `offloads` are names, "requests" alone or with others: "requests" (what `Metadata` asks for is done, and frames come with their
    flow's hash), "verify" (with a word on their checksums), "strip" (VLAN tags stand in the metadata), "unfinished" (frames may come
    whose checksum is only begun, or that stand for several, up to 64 KiB), "join" (TCP frames are joined to such).

    Raises `Error` with what to do.
    """
    options = Options()
    check(library.conic_options_init(ctypes.byref(options), ctypes.sizeof(options)))
    options.socket = None if socket is None else str(socket).encode()
    options.name = name.encode()
    options.network = None if network is None else network.encode()
    options.queues = queues
    options.reconnect = int(reconnect)
    options.promiscuous = int(promiscuous)
    offloads = tuple(offloads)
    options.offloads = offloads_of(offloads)
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
    return Client(client, offloads, options.descriptors)


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

    def __init__(self, pointer, offloads, descriptors):
        self._pointer = pointer
        self._closed = False
        self._process = os.getpid()
        self._closing = threading.RLock()
        # Each thread that calls has one, so that none waits for what another asks of the daemon.
        self._locks = {}
        self.offloads = offloads
        self.queues = [Queue(self, index, descriptors) for index in range(self._info().queues)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def __del__(self):
        self.close()

    def close(self):
        """Detaches, when other threads' calls have ended; the queues are of no use any more. May be called again.

        A handler of a signal may call it in the middle of a call of the same thread. That call goes on then, no other begins, and the next
        `close`, such as the end of the client's `with`, detaches.

        In a process that was forked from the one that attached, it does nothing: the client is that one's.
        """
        # To detach would give its buffers back here too.
        if os.getpid() != self._process:
            return
        with self._closing, contextlib.ExitStack() as held:
            if self._pointer is None:
                return
            # Whoever comes to hold its lock from here on raises.
            self._closed = True
            queues = getattr(self, "queues", [])
            for queue in queues:
                queue._wake()
            locks = [*self._locks.values(), *(queue._lock for queue in queues)]
            # Held by the call that this one has interrupted, it does not end while it is waited for.
            if any(lock._is_owned() for lock in locks):
                return
            # Nobody is in the library while its lock is held here.
            for lock in locks:
                held.enter_context(lock)
            library.conic_detach(self._pointer)
            self._pointer = None

    def _there(self):
        if self._closed:
            raise ValueError("the client was closed")
        return self._pointer

    def _library(self, function, *arguments):
        with self._locks.setdefault(threading.get_ident(), threading.RLock()):
            return check(function(self._there(), *arguments))

    def _info(self):
        info = Info()
        self._library(library.conic_get_info, ctypes.byref(info), ctypes.sizeof(info))
        return info

    @property
    def mac(self):
        """The client's MAC address, as text. May be set to another, unless another client of the network has that."""
        return ":".join(f"{byte:02x}" for byte in self._info().mac)

    @mac.setter
    def mac(self, mac):
        self._library(library.conic_set_mac, _mac_of(mac))

    @property
    def promiscuous(self):
        """Whether it gets frames for stations that nobody is known to have because it asked. May be set, if the NIC's configuration lets it."""
        return self._info().promiscuous == 1

    @promiscuous.setter
    def promiscuous(self, on):
        self._library(library.conic_set_promiscuous, int(on))

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
        return self._library(library.conic_link) == 1

    @property
    def detached(self):
        """Why the daemon detached the client, or did not let it attach again, if it said so, or None."""
        why = ctypes.create_string_buffer(1024)
        said = self._library(library.conic_detached, why, len(why))
        return why.value.decode(errors="replace") if said else None

    @property
    def statistics(self):
        """What all queues have done together, and `reconnects`: a dict of numbers."""
        total = {"reconnects": self._info().reconnects}
        for queue in self.queues:
            for name, value in queue.statistics.items():
                total[name] = total.get(name, 0) + value
        return total

    def send(self, frames, timeout=1.0, metadata=None):
        """Sends on the first queue; see `Queue.send`."""
        return self.queues[0].send(frames, timeout, metadata)

    def receive(self, count=None, timeout=0.0):
        """Receives on the first queue; see `Queue.receive`."""
        return self.queues[0].receive(count, timeout)

    async def receive_async(self, count=None, timeout=None):
        """Receives on the first queue; see `Queue.receive_async`."""
        return await self.queues[0].receive_async(count, timeout)


class Queue:
    """One queue pair of a client: `client.queues[index]`."""

    def __init__(self, client, index, descriptors):
        self._client = client
        self._ring = descriptors
        # Such as know whose they are: see `Client.close`.
        self._lock = threading.RLock()
        # Wakes the coroutine that waits.
        self._sleeper = None
        self._pointer = library.conic_get_queue(client._there(), index)
        self.index = index
        # The parts of a chain whose rest comes with the next burst, and its metadata.
        self._parts, self._word = [], 0

    def send(self, frames, timeout=1.0, metadata=None):
        """Sends one frame or several, each bytes or what `bytes` makes some of (a scapy packet), and returns how many were sent:
        fewer than there are only where there is no room, or no link, for `timeout` seconds.

        `metadata` is what the NIC is to do to them: a `Metadata` for all, or one (or None) for each; for clients with `offloads`. A
        frame that is to be cut may have up to 65,536 bytes.
        """
        if isinstance(frames, (bytes, bytearray, memoryview)) or not _is_list(frames):
            frames = [frames]
        frames = [bytes(frame) for frame in frames]
        words = self._words(metadata, len(frames))
        longest = self._client.longest_frame
        for frame, word in zip(frames, words):
            most = PARTS * LARGEST if word & LARGE else longest
            if not 1 <= len(frame) <= most:
                raise ValueError(f"a frame on this network has 1 to {most} bytes, and not {len(frame)}")
        frames = list(zip(frames, words))
        sent = 0
        until = _end(timeout)
        while sent < len(frames):
            taken = self._send_some(frames[sent : sent + BURST])
            sent += taken
            if taken == 0:
                if _left(until) <= 0:
                    break
                # Nobody rings when there is room again.
                time.sleep(PAUSE)
        return sent

    def _words(self, metadata, count):
        """A word for each of so many frames."""
        each = [metadata] * count if metadata is None or isinstance(metadata, Metadata) else list(metadata)
        if len(each) != count:
            raise ValueError(f"{count} frames have one metadata for all, or one for each, and not {len(each)}")
        words = [0 if one is None else one.request() for one in each]
        if any(words) and not self._client.offloads:
            raise ValueError("metadata is for clients that were attached with offloads, such as offloads=['requests']")
        return words

    def _send_some(self, frames):
        bufs, count, ends = (Buf * (PARTS * len(frames)))(), 0, []
        with self._lock:
            self._client._there()
            for frame, word in frames:
                begun = count
                for at in range(0, len(frame), LARGEST):
                    part = frame[at : at + LARGEST]
                    # Each has a length of its own, and so a buffer of its own size.
                    if check(library.conic_buf_alloc(self._pointer, len(part), _at(bufs, count), 1)) == 0:
                        break
                    ctypes.memmove(bufs[count].data, part, len(part))
                    bufs[count].flags = NEXT if at + LARGEST < len(frame) else 0
                    count += 1
                else:
                    bufs[begun].metadata = word
                    ends.append(count)
                    continue
                # A chain is sent whole: what there is of this one goes back with the rest.
                break
            whole = ends[-1] if ends else 0
            taken = library.conic_tx_burst(self._pointer, bufs, whole)
            left = max(taken, 0)
            library.conic_buf_free(self._pointer, _at(bufs, left), count - left)
        check(taken)
        return sum(end <= taken for end in ends)

    def receive(self, count=None, timeout=0.0):
        """Receives frames, as a list of `Frame`, which are bytes with `metadata`. Waits up to `timeout` seconds (None: as long as it takes) for the first if `count` is
        None, and then takes what there is; otherwise waits until there are `count`, and returns fewer only after the time.
        """
        frames, until = [], _end(timeout)
        while not self._receive_into(frames, count) and _left(until) > 0:
            self.wait(None if timeout is None else _left(until))
        return frames

    async def receive_async(self, count=None, timeout=None):
        """As `receive`, while other coroutines of the event loop go on; one coroutine for each queue."""
        frames, until = [], _end(timeout)
        while not self._receive_into(frames, count) and _left(until) > 0:
            await asyncio.sleep(0)
            await self._ready(None if timeout is None else _left(until))
        return frames

    def wait(self, timeout=None):
        """Waits until there is a frame to receive, `timeout` seconds at the most (None: as long as it takes); says whether there is."""
        until, poll = _end(timeout), select.poll()
        poll.register(self.fileno(), select.POLLIN)
        while True:
            left = _left(until)
            with self._lock:
                # A negative time would be as long as it takes.
                if self._library(library.conic_wait, SPIN if left > SPIN / 1e9 else max(0, int(left * 1e9))):
                    return True
                if left <= 0:
                    return False
                if self._library(library.conic_arm):
                    return True
            # Other threads may use the queue meanwhile.
            poll.poll(min(left, PIECE) * 1000)
            with self._lock:
                self._library(library.conic_disarm)

    def fileno(self):
        """The descriptor of conic_get_fd, as event loops ask for it. It is readable only for who has called `arm`."""
        with self._lock:
            return self._library(library.conic_get_fd)

    def arm(self):
        """conic_arm, for an event loop of one's own: True if there is a frame already, and the loop may not sleep."""
        with self._lock:
            return self._library(library.conic_arm) == 1

    def disarm(self):
        """conic_disarm: after the event loop has woken, before `receive`."""
        with self._lock:
            self._library(library.conic_disarm)

    def _library(self, function, *arguments):
        self._client._there()
        return check(function(self._pointer, *arguments))

    async def _ready(self, timeout):
        if self.arm():
            return
        loop, ready = asyncio.get_running_loop(), asyncio.Event()
        # One of its own: the client may be closed meanwhile, and then another file gets the number of the library's.
        descriptor = os.dup(self.fileno())
        self._sleeper = loop, ready
        loop.add_reader(descriptor, ready.set)
        try:
            # Closed before there was a sleeper, nobody wakes it.
            if not self._client._closed:
                await asyncio.wait_for(ready.wait(), timeout)
        except asyncio.TimeoutError:
            pass
        finally:
            self._sleeper = None
            loop.remove_reader(descriptor)
            os.close(descriptor)
            if not self._client._closed:
                self.disarm()

    def _wake(self):
        """Wakes the coroutine that waits for this queue, from any thread."""
        sleeper = self._sleeper
        if sleeper is not None:
            loop, ready = sleeper
            # A loop that is closed has nobody to wake.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(ready.set)

    def _receive_into(self, frames, count):
        """Takes what there is, up to `count` in all; whether that is enough. No more at once than a ring holds: whoever sends as fast as
        this takes would keep it from looking at the time.
        """
        most = len(frames) + self._ring
        while len(frames) < (most if count is None else min(count, most)):
            got = self._receive_some(BURST if count is None else min(BURST, count - len(frames)))
            frames += got
            if not got:
                break
        return bool(frames) if count is None else len(frames) == count

    def _receive_some(self, most):
        bufs, frames = (Buf * most)(), []
        with self._lock:
            self._client._there()
            while not frames:
                got = check(library.conic_rx_burst(self._pointer, bufs, most))
                for buf in bufs[:got]:
                    self._word = self._word if self._parts else buf.metadata
                    self._parts.append(ctypes.string_at(buf.data, buf.length))
                    if not buf.flags & NEXT:
                        frames.append(Frame(b"".join(self._parts), self._word))
                        self._parts = []
                check(library.conic_buf_free(self._pointer, bufs, got))
                if got == 0:
                    break
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


def _end(timeout):
    return None if timeout is None else time.monotonic() + timeout


def _left(until):
    return float("inf") if until is None else until - time.monotonic()
