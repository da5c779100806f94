"""Tests of the module, run by bindings/c/tests/library/python.rs, which starts the daemons and says where they are.

CONIC_LIBRARY: libconic.so. CONIC_HEADER: the folder of conic.h. CONIC_LOOPBACK: the socket of a daemon in loopback mode.
CONIC_BRIDGE: that of one whose clients reach each other.
"""

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import conic
from conic import Metadata, _client, _library, _metadata

LOOPBACK = os.environ["CONIC_LOOPBACK"]
BRIDGE = os.environ["CONIC_BRIDGE"]


def frame(to, source, length, number=0):
    """A frame of a type for experiments."""
    header = bytes.fromhex(to.replace(":", "")) + bytes.fromhex(source.replace(":", "")) + b"\x88\xb5"
    return header + bytes((number + index) % 256 for index in range(length - len(header)))


def ones_sum(data):
    """The sum of 16-bit words in ones' complement (RFC 1071)."""
    total = sum(int.from_bytes(data[at : at + 2].ljust(2, b"\0"), "big") for at in range(0, len(data), 2))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return total


def tcp(to, source, payload):
    """A TCP frame whose checksums are begun, and the same with them complete."""
    ethernet = bytes.fromhex(to.replace(":", "")) + bytes.fromhex(source.replace(":", "")) + b"\x08\x00"
    addresses = bytes([10, 0, 0, 1, 10, 0, 0, 2])
    length = 20 + len(payload)
    network = [b"\x45\0", (20 + length).to_bytes(2, "big"), bytes(4), b"\x40\x06"]
    transport = [b"\x03\xe8\x00\x50", bytes(8), b"\x50\x10\xff\xff"]
    pseudo = ones_sum(addresses + b"\0\x06" + length.to_bytes(2, "big"))
    begun = transport + [pseudo.to_bytes(2, "big"), bytes(2), payload]
    # The field's own sum is in it: that of everything is complemented.
    checksum = 0xFFFF - ones_sum(b"".join(begun))
    complete = transport + [checksum.to_bytes(2, "big"), bytes(2), payload]
    header = 0xFFFF - ones_sum(b"".join(network) + addresses)
    of = lambda checksum, segment: b"".join([ethernet, *network, checksum.to_bytes(2, "big"), addresses, *segment])
    return of(0, begun), of(header, complete)


class Promiscuous(unittest.TestCase):
    def test_the_operator_decides(self):
        """The daemon's configuration lets nobody have frames for unknown stations."""
        with self.assertRaisesRegex(conic.Error, "promiscuous = true"):
            conic.attach(BRIDGE, promiscuous=True)
        with conic.attach(BRIDGE) as client:
            with self.assertRaises(conic.Error):
                client.promiscuous = True
            client.promiscuous = False
            self.assertFalse(client.promiscuous)


class Layout(unittest.TestCase):
    def test_structures_are_what_the_header_says(self):
        """A C compiler is asked for the size of each structure and the place of each field."""
        lines, expected = [], []
        for name, structure in _library.STRUCTURES.items():
            lines.append(f'printf("%zu\\n", sizeof(struct {name}));')
            expected.append(ctypes_size(structure))
            for field, *_ in structure._fields_:
                lines.append(f'printf("%zu\\n", offsetof(struct {name}, {field}));')
                expected.append(getattr(structure, field).offset)
        program = "#include <conic.h>\n#include <stdio.h>\nint main(void) { " + " ".join(lines) + " return 0; }\n"
        with tempfile.TemporaryDirectory() as folder:
            source, binary = os.path.join(folder, "layout.c"), os.path.join(folder, "layout")
            with open(source, "w", encoding="ascii") as file:
                file.write(program)
            subprocess.run(["cc", "-I", os.environ["CONIC_HEADER"], "-o", binary, source], check=True)
            said = subprocess.run([binary], check=True, capture_output=True, text=True).stdout
        self.assertEqual([int(line) for line in said.split()], expected)

    def test_every_function_of_the_header_is_known(self):
        with open(os.path.join(os.environ["CONIC_HEADER"], "conic.h"), encoding="utf-8") as file:
            code = [line for line in file if line[:1] not in " /*#"]
        declared = {word.split("(")[0].lstrip("*") for line in code for word in line.split() if word.lstrip("*").startswith("conic_") and "(" in word}
        self.assertEqual(declared, set(_library.FUNCTIONS))


    def test_every_constant_of_offloads_is_the_headers(self):
        with open(os.path.join(os.environ["CONIC_HEADER"], "conic.h"), encoding="utf-8") as file:
            words = [line.split(maxsplit=2) for line in file]
        defined = {word[1]: word[2].strip() for word in words if word[:1] == ["#define"] and len(word) == 3}
        for name, flag in _metadata.OFFLOADS.items():
            self.assertEqual(int(defined.pop("CONIC_OFFLOAD_" + name.upper())), flag)
        for name in [name for name in defined if name.startswith("CONIC_META_")]:
            base, shift = defined.pop(name).strip("()").split(" << ")
            # Of 64 bits: an int of C has no bit of such a number.
            self.assertEqual(base, "1ull")
            self.assertEqual(getattr(_metadata, name[len("CONIC_META_") :]), 1 << int(shift))
        self.assertEqual(defined, {"CONIC_BUF_NEXT": str(_client.NEXT)})


def ctypes_size(structure):
    return _library.ctypes.sizeof(structure)


class Loopback(unittest.TestCase):
    def test_frames_of_all_sizes_come_back(self):
        with conic.attach(LOOPBACK) as client:
            self.assertRegex(client.mac, "^([0-9a-f]{2}:){5}[0-9a-f]{2}$")
            self.assertTrue(client.link)
            self.assertIsNone(client.detached)
            for length in (60, 64, 128, 129, 1500, 4097, client.longest_frame):
                sent = frame("02:00:00:00:00:01", client.mac, length, length)
                self.assertEqual(client.send(sent), 1)
                self.assertEqual(client.receive(1, timeout=5), [sent])
            self.assertEqual(client.receive(), [])
            statistics = client.statistics
            self.assertEqual((statistics["sent_frames"], statistics["received_frames"]), (7, 7))
            self.assertEqual((statistics["refused"], statistics["reconnects"]), (0, 0))

    def test_many_frames_keep_their_order(self):
        with conic.attach(LOOPBACK) as client:
            sent = [frame("02:00:00:00:00:01", client.mac, 60 + number % 100, number) for number in range(200)]
            self.assertEqual(client.send(sent), 200)
            self.assertEqual(client.receive(200, timeout=10), sent)

    def test_queues_and_threads(self):
        with conic.attach(LOOPBACK, queues=2) as client:
            wrong = []

            def work(queue):
                for number in range(50):
                    sent = frame("02:00:00:00:00:01", client.mac, 100, number)
                    if queue.send(sent) != 1 or queue.receive(1, timeout=5) != [sent]:
                        wrong.append((queue.index, number))

            threads = [threading.Thread(target=work, args=(queue,)) for queue in client.queues]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            self.assertEqual(wrong, [])

    def test_a_wait_ends_with_a_frame_or_its_time(self):
        with conic.attach(LOOPBACK) as client:
            queue, sent = client.queues[0], frame("02:00:00:00:00:01", client.mac, 60)
            begun = time.monotonic()
            self.assertFalse(queue.wait(0.02))
            self.assertGreaterEqual(time.monotonic() - begun, 0.02)
            self.assertFalse(queue.wait(0))
            later = threading.Timer(0.1, queue.send, [sent])
            later.start()
            # No time is given: only the frame ends it, which another thread sends meanwhile.
            self.assertTrue(queue.wait())
            self.assertEqual(client.receive(1, timeout=None), [sent])
            later.join()

    def test_an_event_loop_of_ones_own(self):
        with conic.attach(LOOPBACK) as client:
            queue, sent = client.queues[0], frame("02:00:00:00:00:01", client.mac, 60)
            for _ in range(10):
                self.assertFalse(queue.arm())
                self.assertEqual(select.select([queue], [], [], 0)[0], [])
                queue.send(sent)
                self.assertEqual(select.select([queue], [], [], 5)[0], [queue])
                queue.disarm()
                self.assertEqual(select.select([queue], [], [], 0)[0], [])
                self.assertEqual(queue.receive(1, timeout=5), [sent])

    def test_coroutines_wait_for_several_clients(self):
        async def echo(client, count, ticks):
            sent = [frame("02:00:00:00:00:01", client.mac, 60, number) for number in range(count)]
            for one in sent:
                await asyncio.sleep(0.002)
                client.send(one)
                got = await client.receive_async(1, timeout=5)
                ticks.append(client.mac)
                if got != [one]:
                    raise AssertionError(f"{got} instead of {one}")
            return await client.receive_async(1, timeout=0.01)

        async def both(first, second, ticks):
            return await asyncio.gather(echo(first, 20, ticks), echo(second, 20, ticks))

        with conic.attach(LOOPBACK) as first, conic.attach(LOOPBACK) as second:
            ticks = []
            self.assertEqual(asyncio.run(both(first, second, ticks)), [[], []])
            self.assertEqual(len(ticks), 40)
            # Neither waited for the other's end.
            self.assertEqual(set(ticks[:20]), {first.mac, second.mac})

    def test_a_coroutine_that_waits_ends_when_its_client_is_closed(self):
        async def closed_meanwhile(client, close):
            waiting = asyncio.ensure_future(client.receive_async())
            await asyncio.sleep(0.05)
            close(client)
            await asyncio.wait([waiting], timeout=10)
            return waiting.done() and str(waiting.exception())

        def by_another_thread(client):
            threading.Thread(target=client.close).start()

        for close in (conic.Client.close, by_another_thread):
            client = conic.attach(LOOPBACK)
            self.assertEqual(asyncio.run(closed_meanwhile(client, close)), "the client was closed")

    def test_a_handler_of_a_signal_closes_in_the_middle_of_a_call(self):
        with conic.attach(LOOPBACK) as client:
            sent = [frame("02:00:00:00:00:01", client.mac, 60)] * 32
            before = signal.signal(signal.SIGALRM, lambda *_: client.close())
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                with self.assertRaisesRegex(ValueError, "closed"):
                    while True:
                        client.send(sent, timeout=0)
            finally:
                signal.signal(signal.SIGALRM, before)
        # As when it comes between the library's calls, whatever they are.
        client = conic.attach(LOOPBACK)
        with client.queues[0]._lock:
            client.close()
            with self.assertRaisesRegex(ValueError, "closed"):
                client.receive()
            self.assertIsNotNone(client._pointer)
        client.close()
        self.assertIsNone(client._pointer)

    def test_wrong_arguments_are_told(self):
        with conic.attach(LOOPBACK) as client:
            with self.assertRaisesRegex(ValueError, "1 to [0-9]+ bytes, and not 0"):
                client.send(b"")
            with self.assertRaisesRegex(ValueError, "and not 20000"):
                client.send(bytes(20000))
        with self.assertRaisesRegex(ValueError, "closed"):
            client.receive()
        client.close()
        with self.assertRaisesRegex(conic.Error, "there is no network nowhere") as raised:
            conic.attach(LOOPBACK, network="nowhere")
        self.assertEqual(raised.exception.status, -3)
        with self.assertRaisesRegex(conic.Error, "no NIC listens"):
            conic.attach("/nonexistent/nic.sock")
        with self.assertRaisesRegex(ValueError, "a MAC address is as"):
            conic.attach(LOOPBACK, mac="02:00")

    def test_a_client_is_closed_while_another_thread_asks_for_its_link(self):
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            path = os.path.join(folder, "nic.sock")
            listener.bind(path)
            listener.listen()
            passing = threading.Thread(target=pass_on_and_hang_up, args=(listener,))
            passing.start()
            client = conic.attach(path, patience=1)
            passing.join()
            self.assertFalse(client.link)
            asked, said = [], []

            def ask():
                try:
                    while True:
                        asked.append(time.monotonic())
                        said.append(client.link)
                except ValueError as closed:
                    said.append(str(closed))

            asking = threading.Thread(target=ask)
            asking.start()
            # It attaches again at one that does not answer, and is waited for; what it asks after that says that the client is closed.
            with listener.accept()[0]:
                last = asked[-1]
                client.close()
                self.assertGreaterEqual(time.monotonic() - last, 1)
                asking.join()
            self.assertEqual(said, [False] * (len(said) - 1) + ["the client was closed"])

    def test_who_only_sends_and_has_no_buffer_attaches_again(self):
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            path = os.path.join(folder, "nic.sock")
            listener.bind(path)
            listener.listen()
            listener.settimeout(20)
            passing = threading.Thread(target=pass_on_and_hang_up, args=(listener,))
            passing.start()
            with conic.attach(path, buffers=(64, 64, 64)) as client:
                passing.join()
                again = threading.Thread(target=pass_on_and_hang_up, args=(listener,))
                again.start()
                until = time.monotonic() + 10
                while client.statistics["reconnects"] == 0:
                    # The ring has room for more than there are buffers, and nobody gives them back.
                    client.send(bytes(5000), timeout=0.05)
                    self.assertLess(time.monotonic(), until)
                again.join()


def pass_on_and_hang_up(listener):
    """Lets a client attach to the daemon in loopback mode, passing on what both say, and ends its connection."""
    with listener.accept()[0] as client, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as daemon:
        daemon.connect(LOOPBACK)
        # Its greeting and its wish, and the answers, of which the second passes the region.
        for source, target in [(client, daemon), (daemon, client)] * 2:
            message, descriptors, *_ = socket.recv_fds(source, 4096, 16)
            socket.send_fds(target, [message], descriptors)
            for descriptor in descriptors:
                os.close(descriptor)


class Bridge(unittest.TestCase):
    def test_two_clients_talk(self):
        with conic.attach(BRIDGE, mac="02:00:00:00:00:0a") as a, conic.attach(BRIDGE) as b:
            self.assertEqual(a.mac, "02:00:00:00:00:0a")
            there = frame(b.mac, a.mac, 300)
            a.send(there)
            self.assertEqual(b.receive(1, timeout=5), [there])
            back = frame(a.mac, b.mac, 60)
            b.send(back)
            self.assertEqual(a.receive(timeout=5), [back])

    def test_the_end_of_a_process_that_was_forked_takes_nothing_from_the_other(self):
        with conic.attach(BRIDGE) as first, conic.attach(BRIDGE) as second:

            def pass_frames(rounds):
                for number in range(rounds):
                    sent = [frame(second.mac, first.mac, 100, 32 * number + each) for each in range(32)]
                    self.assertEqual(first.send(sent), len(sent))
                    self.assertEqual(second.receive(len(sent), timeout=10), sent)

            pass_frames(10)
            child = os.fork()
            if child == 0:
                # As an interpreter does that ends, and as a worker does that leaves by sys.exit.
                for client in (first, second):
                    with client:
                        pass
                    client.__del__()
                os._exit(0)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            pass_frames(200)
            freed_twice = [client.statistics["freed_twice"] for client in (first, second)]
            self.assertEqual(freed_twice, [0, 0])

    def test_a_sender_that_is_as_fast_as_its_receiver_does_not_keep_it(self):
        with conic.attach(BRIDGE, descriptors=64) as client:
            client.queues[0]._receive_some = lambda most: [b"frame"] * most
            self.assertEqual(len(client.receive()), 64)
            self.assertEqual(len(client.receive(100, timeout=0)), 64)
            self.assertEqual(len(client.receive(100, timeout=5)), 100)

            async def both():
                async def other():
                    order.append("other")

                order = []
                task = asyncio.create_task(other())
                self.assertEqual(len(await client.receive_async(100, timeout=5)), 100)
                order.append("received")
                await task
                return order

            self.assertEqual(asyncio.run(both()), ["other", "received"])

    def test_a_client_changes_its_address(self):
        with conic.attach(BRIDGE, mac="02:00:00:00:00:0a") as a, conic.attach(BRIDGE) as b:
            a.mac = "02:00:00:00:00:0b"
            self.assertEqual(a.mac, "02:00:00:00:00:0b")
            sent = frame("02:00:00:00:00:0b", b.mac, 60)
            b.send(sent)
            self.assertEqual(a.receive(timeout=5), [sent])
            for refused in [b.mac, "03:00:00:00:00:01", "00:00:00:00:00:00"]:
                with self.assertRaisesRegex(conic.Error, "refused"):
                    a.mac = refused
            with self.assertRaisesRegex(ValueError, "a MAC address is as"):
                a.mac = "02:00"
            self.assertEqual(a.mac, "02:00:00:00:00:0b")

    def test_the_nic_completes_checksums_and_says_whether_they_are_right(self):
        with conic.attach(BRIDGE, offloads=["requests"]) as a, conic.attach(BRIDGE, offloads=["requests", "verify"]) as b:
            begun, finished = tcp(b.mac, a.mac, b"x" * 100)
            self.assertEqual(a.send(begun, metadata=Metadata(checksum=(34, 16), ipv4_checksum=True)), 1)
            (got,) = b.receive(1, timeout=5)
            self.assertEqual(got, finished)
            self.assertEqual((got.metadata.checksum_is_right, got.metadata.ipv4_checksum_is_right), (True, True))
            # One of the same flow whose checksum is wrong: told, with the same hash.
            a.send([begun, finished], metadata=[None, Metadata()])
            wrong, right = b.receive(2, timeout=5)
            self.assertEqual((wrong, wrong.metadata.checksum_is_right), (begun, False))
            self.assertEqual((right, right.metadata.checksum_is_right), (finished, True))
            self.assertEqual({wrong.metadata.hash, right.metadata.hash}, {got.metadata.hash})
            self.assertIsInstance(got.metadata.hash, int)
            self.assertEqual(a.statistics["refused"], 0)

    def test_the_nic_cuts_packets_or_passes_them_on_whole(self):
        payload = bytes(number % 251 for number in range(40_000))
        with conic.attach(BRIDGE, offloads=["requests"], buffers=(256, 256, 16)) as a:
            request = Metadata(checksum=(34, 16), ipv4_checksum=True, segment=1000)
            with conic.attach(BRIDGE, offloads=["requests", "verify"]) as b:
                self.assertEqual(a.send(tcp(b.mac, a.mac, payload)[0], metadata=request), 1)
                cut = b.receive(40, timeout=5)
                self.assertEqual(b"".join(frame[54:] for frame in cut), payload)
                self.assertEqual({len(frame) for frame in cut}, {1054})
                self.assertTrue(all(frame.metadata.checksum_is_right for frame in cut))
            with conic.attach(BRIDGE, offloads=["requests", "unfinished"], buffers=(256, 256, 16)) as c:
                whole = tcp(c.mac, a.mac, payload)[0]
                self.assertEqual(a.send([whole, whole], metadata=request), 2)
                # One at a time, though each lies in several buffers.
                for _ in range(2):
                    (got,) = c.receive(1, timeout=5)
                    self.assertEqual((got[54:], got.metadata.segment, got.metadata.checksum), (payload, 1000, (34, 16)))

    def test_the_nic_puts_tags_in_and_takes_them_out(self):
        with conic.attach(BRIDGE, offloads=["requests"]) as a, conic.attach(BRIDGE, offloads=["requests", "strip"]) as b:
            with conic.attach(BRIDGE) as plain:
                sent = frame(plain.mac, a.mac, 100)
                a.send(sent, metadata=Metadata(vlan=0x6007))
                (got,) = plain.receive(1, timeout=5)
                self.assertEqual((got, got.metadata), (sent[:12] + b"\x81\x00\x60\x07" + sent[12:], Metadata()))
            sent = frame(b.mac, a.mac, 100)
            a.send(sent, metadata=Metadata(vlan=0x6007))
            (got,) = b.receive(1, timeout=5)
            self.assertEqual((got, got.metadata.vlan), (sent, 0x6007))

    def test_metadata_that_means_nothing_is_told(self):
        with self.assertRaisesRegex(ValueError, "no offload checksum; there are requests"):
            conic.attach(BRIDGE, offloads=["requests", "checksum"])
        for offloads in (["verify"], ["requests", "join"]):
            with self.assertRaisesRegex(ValueError, "go(es)? with"):
                conic.attach(BRIDGE, offloads=offloads)
        with conic.attach(BRIDGE, offloads=["requests"]) as client:
            for wrong in (dict(segment=10), dict(checksum=(34, 16), segment=0), dict(checksum=(256, 0)), dict(vlan=-1), dict(hash=1)):
                with self.assertRaises(ValueError):
                    client.send(bytes(60), metadata=Metadata(**wrong))
            with self.assertRaisesRegex(ValueError, "2 frames"):
                client.send([bytes(60), bytes(60)], metadata=[None])
            self.assertEqual(client.statistics["sent_frames"], 0)
        with conic.attach(BRIDGE) as client:
            with self.assertRaisesRegex(ValueError, "offloads="):
                client.send(bytes(60), metadata=Metadata(vlan=7))

    def scapy_there(self):
        try:
            import scapy.layers.inet  # noqa: F401
        except ImportError:
            # The runner shows this line: a skip is a result of its own.
            print("skipped: scapy is not installed; its packets were not tried", file=sys.stderr)
            self.skipTest("scapy is not installed")

    def test_scapy_asks_and_sniffs_over_a_queue(self):
        self.scapy_there()
        from conic.scapy import Socket
        from scapy.layers.inet import ICMP, IP
        from scapy.layers.l2 import Ether

        def answer(request):
            reply = Ether(src=request.dst, dst=request.src) / IP(src=request[IP].dst, dst=request[IP].src)
            there.send(reply / ICMP(type=0, id=request[ICMP].id, seq=request[ICMP].seq) / bytes(request[ICMP].payload))

        with conic.attach(BRIDGE) as a, conic.attach(BRIDGE) as b:
            with Socket(a.queues[0]) as here, Socket(b.queues[0]) as there:
                asked = Ether(src=a.mac, dst=b.mac) / IP(src="10.0.0.1", dst="10.0.0.2") / ICMP(id=7, seq=3) / (b"x" * 40)
                heard = []
                responder = threading.Thread(target=lambda: heard.extend(there.sniff(count=1, prn=answer, timeout=10)))
                responder.start()
                got = here.sr1(asked, timeout=10, verbose=False)
                responder.join()
            self.assertEqual([bytes(packet) for packet in heard], [bytes(asked)])
            self.assertEqual((got[IP].src, got[ICMP].type, bytes(got[ICMP].payload)), ("10.0.0.2", 0, b"x" * 40))
            # The queue goes on when its socket is closed, and nothing was left in it.
            self.assertEqual((a.receive(), b.receive()), ([], []))

    def test_scapy_packets_pass(self):
        self.scapy_there()
        from scapy.layers.inet import ICMP, IP
        from scapy.layers.l2 import Ether

        with conic.attach(BRIDGE) as a, conic.attach(BRIDGE) as b:
            ping = Ether(src=a.mac, dst=b.mac) / IP(src="10.0.0.1", dst="10.0.0.2") / ICMP() / (b"x" * 40)
            self.assertEqual(a.send(ping), 1)
            (got,) = b.receive(1, timeout=5)
            self.assertEqual(Ether(got)[IP].dst, "10.0.0.2")
            self.assertEqual(got, bytes(ping))


if __name__ == "__main__":
    unittest.main()
