/*
 * conic.h: packets through the daemon of the coherent NIC in software, `conic nic`.
 *
 * A program attaches, takes its queues, and sends and receives packets that lie in memory which it shares with the daemon alone:
 *
 *     struct conic_client *client;
 *     struct conic_buf bufs[32];
 *     char why[256];
 *     if (conic_attach(NULL, &client, why, sizeof why) < 0)
 *         errx(1, "%s", why);
 *     struct conic_queue *queue = conic_get_queue(client, 0);
 *     for (;;) {
 *         int got = conic_rx_burst(queue, bufs, 32);
 *         int sent = conic_tx_burst(queue, bufs, got);
 *         if (sent < 0)
 *             sent = 0;
 *         conic_buf_free(queue, bufs + sent, got - sent);
 *         if (got == 0)
 *             conic_wait(queue, -1);
 *     }
 *
 * Compile with `cc $(pkg-config --cflags conic) ... $(pkg-config --libs conic)`. conic(3) says the same as this file.
 *
 * Threads. A queue is used by one thread at a time, several queues by several threads at once. Everything else may be called by
 * any thread; each function's comment says so again.
 *
 * Pointers. A client comes from conic_attach and lives until conic_detach; a queue comes from conic_get_queue and lives as long
 * as its client. NULL is always noticed. Any other pointer must be what it is said to be: nobody can check it. Nothing that
 * the library is given is kept, but by conic_attach the client and by conic_tx_burst the packets that it took.
 *
 * Buffers. Whoever has got a buffer gives it away once, by sending or by freeing it, to any queue of the same client. One that is
 * sent or freed twice is a mistake that the library or the daemon notices where it can: the daemon counts it, and detaches a
 * client that goes on. A packet whose bytes do not lie in a buffer of the client is refused.
 *
 * Errors. Functions that return an int return a number that is not negative, or one of enum conic_error. None of them ends
 * the process, or blocks (but conic_wait, as long as it is told, and conic_attach, conic_link, conic_set_mac and conic_set_promiscuous,
 * for no longer than the options' patience at each step). errno is nothing that they speak by.
 *
 * Waiting. Polling conic_rx_burst is the fastest. conic_wait sleeps when there is nothing for a while; conic_get_fd, conic_arm
 * and conic_disarm are for programs with an event loop:
 *
 *     struct pollfd waited = {conic_get_fd(queue), POLLIN, 0};
 *     for (;;) {
 *         if (conic_arm(queue) == 0)
 *             poll(&waited, 1, -1);
 *         conic_disarm(queue);
 *         while ((got = conic_rx_burst(queue, bufs, 32)) > 0)
 *             ...
 *     }
 *
 * The daemon's death. conic_link is 0 from then on, nothing can be sent, what had been delivered is still received, and every
 * buffer keeps its contents. When a daemon listens at the socket again, the client attaches by itself, whenever a queue or
 * conic_link is called, and everything goes on; old buffers are sent by copying them, and may be freed at any time. What had
 * been sent and was not yet read by the daemon is lost.
 *
 * After fork, only one of the two processes may go on with a client. The other does not even detach it, which would give back
 * buffers that are the first one's: it leaves the client alone until it ends.
 *
 * A client that the daemon detaches, by an operator's word or for what it did, finds the same: it attaches again by itself, and
 * its old buffers keep their contents. They count against its user's quota until all of them are sent or freed and each queue has
 * been called since; where that has no room for more, the oldest region that was left so becomes zeroes.
 */


#ifndef CONIC_H
#define CONIC_H

#include <stddef.h>
#include <stdint.h>

// In `offloads`: what packets' metadata asks for is done (checksums, segmentation, VLAN tags), and received packets have the hash
// of their flow.
#define CONIC_OFFLOAD_REQUESTS 1

// In `offloads`: received packets have a word on their checksums, which costs the NIC a look at each byte.
#define CONIC_OFFLOAD_VERIFY 2

// In `offloads`: VLAN tags of type 0x8100 are taken out of received packets and stand in their metadata.
#define CONIC_OFFLOAD_STRIP 4

// In `offloads`: packets may be received whose checksum is only begun, and packets that stand for several, in chains of up to 4
// parts and 64 KiB.
#define CONIC_OFFLOAD_UNFINISHED 8

// In `offloads`, with `CONIC_OFFLOAD_UNFINISHED`: TCP frames of one flow that follow each other are received as one packet that stands
// for them, which costs the NIC a look at each byte.
#define CONIC_OFFLOAD_JOIN 16

// In a packet's `flags`: it goes on in the next one of the array. A chain has at most 4 parts.
#define CONIC_BUF_NEXT 1

// In `metadata`, to the NIC: complete TCP's or UDP's checksum, whose field holds the sum of the pseudo-header, not complemented.
// From it: the checksum is not complete, and need not be. Bits 0 to 7 say where the transport header begins, in bytes from the
// frame's beginning, and bits 8 to 15 where the checksum lies, in bytes from there.
#define CONIC_META_BEGUN (1ull << 48)

// In `metadata`, to the NIC: fill in the checksum of the IPv4 header.
#define CONIC_META_NETWORK (1ull << 49)

// In `metadata`, with `CONIC_META_BEGUN`: the packet is to be cut into several, or stands for several, each with as many bytes of
// payload as bits 16 to 31 say. The sum of the pseudo-header is made anew.
#define CONIC_META_LARGE (1ull << 50)

// In `metadata`: a VLAN tag is to be put in, or was taken out; bits 32 to 47 are its control information.
#define CONIC_META_VLAN (1ull << 51)

// In `metadata` of a received packet without `CONIC_META_BEGUN`: bits 0 to 31 are the hash of its flow (Toeplitz, with the key of
// Microsoft's verification suite).
#define CONIC_META_HASH (1ull << 52)

// In `metadata` of a received packet: TCP's or UDP's checksum is right.
#define CONIC_META_TRANSPORT_GOOD (1ull << 53)

// In `metadata` of a received packet: TCP's or UDP's checksum is wrong. Neither: there is none, or nobody looked.
#define CONIC_META_TRANSPORT_BAD (1ull << 54)

// In `metadata` of a received packet: the IPv4 header's checksum is right.
#define CONIC_META_NETWORK_GOOD (1ull << 55)

// In `metadata` of a received packet: the IPv4 header's checksum is wrong.
#define CONIC_META_NETWORK_BAD (1ull << 56)

// What went wrong: calls that return an `int` return one of these, all of them negative.
enum conic_error {
    // An argument is NULL, or is not what the function's comment asks for.
    CONIC_ERROR_ARGUMENT = -1,
    // Nobody listens at the socket, or this process may not connect to it.
    CONIC_ERROR_CONNECT = -2,
    // The daemon refused, for the reason in the text.
    CONIC_ERROR_REFUSED = -3,
    // The daemon did not answer in time.
    CONIC_ERROR_TIMEOUT = -4,
    // The daemon said or did what cannot be.
    CONIC_ERROR_PEER = -5,
    // The numbers of queues, descriptors or buffers cannot be.
    CONIC_ERROR_GEOMETRY = -6,
    // The memory that came from the daemon was refused or could not be mapped.
    CONIC_ERROR_MEMORY = -7,
    // A packet lies in no buffer, has no bytes, is longer than its buffer, or is a chain without an end.
    CONIC_ERROR_BUFFER = -8,
    // The kernel refused something.
    CONIC_ERROR_SYSTEM = -9,
};

// A client of the daemon: a connection, and the memory that it shares with the daemon alone. Its functions may be called by
// any thread at any time, but `conic_detach` by one, once, when no other call uses the client or a queue of it.
struct conic_client;

// A queue pair of a client. Its functions may be called by any thread, but by one at a time for each queue.
struct conic_queue;

// What a client wants of the daemon. Always begin with `conic_options_init`, then change what is to be different: programs
// that do so go on working with later versions of the library, whose structure may be longer.
//
// The texts are the caller's, and are not looked at any more when `conic_attach` returns.
struct conic_options {
    // Bytes of this structure, as the program knows it; set by `conic_options_init`.
    size_t size;
    // The daemon's socket; NULL is `/run/conic/nic.sock`.
    const char *socket;
    // What the program calls itself, for people who look at the daemon: up to 32 letters, digits and `-_.:`; may be NULL.
    const char *name;
    // The network to attach to; NULL is the daemon's first.
    const char *network;
    // Queue pairs, at least 1.
    uint32_t queues;
    // Descriptors of each ring, a power of two of at least 4.
    uint32_t descriptors;
    // Buffers of 128 bytes, shared by the queues: zero or a power of two.
    uint32_t small_buffers;
    // Buffers of 4096 bytes.
    uint32_t large_buffers;
    // Buffers of 16384 bytes, for frames of up to 9600 bytes.
    uint32_t jumbo_buffers;
    // How long the daemon may take for each step of attaching, in milliseconds.
    uint32_t patience_ms;
    // The MAC address, if `has_mac` is 1.
    uint8_t mac[6];
    // 1: the client wants the address in `mac`; 0: the daemon chooses one.
    uint8_t has_mac;
    // 1: attach again when the daemon was gone and is back; 0: stay down.
    uint8_t reconnect;
    // What the program makes of `metadata`: 0, or `CONIC_OFFLOAD_REQUESTS` and others with it.
    uint32_t offloads;
    // 1: the client wants frames for stations that nobody is known to have, and not attach without; the NIC's configuration says whether it
    // may. 0: it does not.
    uint8_t promiscuous;
    // Zeroes.
    uint8_t reserved[3];
};

// What is known of a client.
struct conic_info {
    // The number of the present session with the daemon.
    uint64_t session;
    // How often the client has attached again after the daemon was gone.
    uint64_t reconnects;
    // Queue pairs.
    uint32_t queues;
    // The longest frame on the network, in bytes without the frame check sequence.
    uint32_t longest_frame;
    // 1 while packets flow, 0 while the daemon is gone or has detached the client.
    uint32_t link;
    // The client's MAC address.
    uint8_t mac[6];
    // 1 while the client gets frames for stations that nobody is known to have because it asked for them.
    uint8_t promiscuous;
    // Zeroes.
    uint8_t reserved[5];
    // The network's name, ended by a zero byte; empty where it is the daemon's first and was not named.
    char network[40];
};

// A packet in memory that the program shares with the daemon, or room for one.
//
// Whose the bytes are: the program's from `conic_buf_alloc` or `conic_rx_burst` on, until it gives them away with
// `conic_tx_burst` or back with `conic_buf_free`. Afterwards they must not be touched. Nobody else writes them while they are the
// program's, but a daemon that is not to be trusted could. The structure itself is the program's own and may be copied.
//
// `data` may be moved within the buffer, as when a header is taken away.
struct conic_buf {
    // The first byte.
    void *data;
    // Bytes of the packet.
    uint32_t length;
    // Bytes from `data` to the end of the buffer, as the library said it; not read by the library.
    uint32_t capacity;
    // `CONIC_BUF_NEXT`, or 0.
    uint32_t flags;
    // Zero.
    uint32_t reserved;
    // What the NIC is asked for, or says of the packet: `CONIC_META_` bits and what belongs to them. Zero in all parts of a
    // chain but the first; zero and not looked at where the client has no `offloads`.
    uint64_t metadata;
};

// What one queue has done.
struct conic_counters {
    // Packets that the NIC took.
    uint64_t sent_frames;
    // Bytes of these.
    uint64_t sent_bytes;
    // Packets received.
    uint64_t received_frames;
    // Bytes of these.
    uint64_t received_bytes;
    // Buffers asked for that there were none of.
    uint64_t no_buffer;
    // Packets that were offered and for which there was no room, or no link; each time that they were offered.
    uint64_t not_taken;
    // Packets from the NIC that lay in no buffer, which were dropped; and those of more than 4 parts, which were cut.
    uint64_t refused;
    // Impossible positions that the NIC wrote to the rings.
    uint64_t ring_faults;
    // Buffers that the program freed, or the NIC handed over, that were free already.
    uint64_t freed_twice;
    // Packets in a region of a daemon that is gone, sent by copying them.
    uint64_t copied;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Attaches to a daemon, waiting for it for no longer than the options' patience at each step.
//
// `options` may be NULL for the defaults of `conic_options_init`. `client` is where the client is put: it belongs to the
// program, which ends it with `conic_detach`; NULL is put there on failure. `text` has room for `text_size` bytes, into which a
// failure is told, with what to do, cut to fit; it may be NULL. Any thread.
//
// Returns 0 or an error.
int conic_attach(const struct conic_options *options,
                 struct conic_client **client,
                 char *text,
                 size_t text_size);

// Ends a client and its queues: the daemon takes everything back, and no buffer of the client may be touched any more. NULL
// is allowed and does nothing. No other thread may be using the client or one of its queues.
void conic_detach(struct conic_client *client);

// One of a client's queues, `index` counting from 0; NULL if there is none or `client` is NULL. It belongs to the client and
// lives as long. Any thread.
struct conic_queue *conic_get_queue(const struct conic_client *client,
                                    unsigned int index);

// The state of the link: 1 while packets flow, 0 while the daemon is gone or has detached the client. Asks the kernel, and
// attaches again if the daemon is back and the client reconnects (which waits for the daemon for no longer than its patience):
// for programs that do not call their queues all the time, which do the same now and then. Any thread.
//
// Returns 1 or 0, or `CONIC_ERROR_ARGUMENT` if `client` is NULL.
int conic_link(const struct conic_client *client);

// Says what is known of a client. `info` has room for `size` bytes, `sizeof(struct conic_info)`. Any thread.
//
// Returns 0, or `CONIC_ERROR_ARGUMENT` if one is NULL, `info` is not aligned, or `size` is less than the structure ever had.
int conic_get_info(const struct conic_client *client,
                   struct conic_info *info,
                   size_t size);

// Asks for another MAC address, six bytes at `mac`, which the client has when this returns, and after a reconnection: what is for the
// old one is its no longer, and it may not send from that where it may send from its own alone. Waits for the daemon for no longer than
// the client's patience; while the daemon is gone, it is asked when it is back. Any thread.
//
// Returns 0, `CONIC_ERROR_ARGUMENT` if one is NULL, `CONIC_ERROR_REFUSED` if another client of the network has the address or it is that
// of no single station, or `CONIC_ERROR_PEER`; the client has its old one then. `CONIC_ERROR_TIMEOUT` if the daemon did not answer in time:
// it may still give the address, which the client has as soon as that answer comes; `conic_get_info` says which it has.
int conic_set_mac(const struct conic_client *client,
                  const uint8_t *mac);

// Asks for frames for stations that nobody is known to have, of the client's VLAN (`on` is 1), or for none of them (0), which is so when
// this returns, and after a reconnection if the NIC grants it then. A client that may send from other addresses than its own gets them
// anyway. Waits for the daemon for no longer than the client's patience; while the daemon is gone, it is asked when it is back. Any
// thread.
//
// Returns 0, `CONIC_ERROR_ARGUMENT` if `client` is NULL or `on` is neither, `CONIC_ERROR_REFUSED` if the NIC's configuration does not let
// this client have them, `CONIC_ERROR_TIMEOUT` if the daemon did not answer in time, or `CONIC_ERROR_PEER`.
int conic_set_promiscuous(const struct conic_client *client,
                          int on);

// Why the daemon detached the client last, if it said so, or why the last attempt to attach again failed at a daemon that was there,
// put into `text`, which has room for `text_size` bytes. Any thread.
//
// Returns 1 if it said so, 0 (and an empty text) if it did not, or `CONIC_ERROR_ARGUMENT` if `client` or `text` is NULL.
int conic_detached(const struct conic_client *client,
                   char *text,
                   size_t text_size);

// Sets `options` to what a client gets that asks for nothing: one queue pair of 1024 descriptors with 2048 small, 1024 large
// and 64 jumbo buffers on the daemon's first network, a MAC address that the daemon chooses, 5 seconds of patience, and
// reconnecting. `size` is `sizeof(struct conic_options)`. Any thread.
//
// Returns 0, or `CONIC_ERROR_ARGUMENT` if `options` is NULL or not aligned, or `size` is less than the structure ever had.
int conic_options_init(struct conic_options *options,
                       size_t size);

// Allocates buffers for packets of `bytes` each (at most 16384), small ones if those are large enough, and puts them into
// `bufs`, which has room for `count`: `length` is `bytes`, `flags` and `metadata` are 0. The bytes themselves are unspecified.
// Never waits. One thread at a time.
//
// Returns how many, less than `count` where there are no more free; or `CONIC_ERROR_ARGUMENT` if `queue` is NULL, `bufs` is NULL
// or not aligned where `count` is not 0, or `bytes` is 0 or too many.
int conic_buf_alloc(struct conic_queue *queue,
                    uint32_t bytes,
                    struct conic_buf *bufs,
                    unsigned int count);

// Frees `count` buffers of any queue of the same client. One thread at a time.
//
// Returns 0; `CONIC_ERROR_BUFFER` if some were no buffers of the client, and the others were freed; or `CONIC_ERROR_ARGUMENT` if `queue` is
// NULL, or `bufs` is NULL or not aligned where `count` is not 0. A buffer that is freed twice is counted where it is noticed
// (`freed_twice`): when it has come back to the pool before. Where it is not, two packets may come to lie in it.
int conic_buf_free(struct conic_queue *queue,
                   const struct conic_buf *bufs,
                   unsigned int count);

// Sends packets, from the front. What was taken is the NIC's, and what was not is still the program's, which offers it again
// or frees it. Never waits. While the link is down nothing is taken. A packet from before the daemon died and came back is
// sent by copying it. One thread at a time.
//
// Returns how many of `bufs` were taken (parts of chains count by themselves, and a chain is taken whole or not at all), less
// than `count` where there is no room for more or where one of them cannot be sent; `CONIC_ERROR_BUFFER` if it is the first that cannot:
// it lies in no buffer of the client, has no bytes, ends behind its buffer, has unknown flags, or is a chain of more than 4 or
// without an end; or `CONIC_ERROR_ARGUMENT` if `queue` is NULL, or `bufs` is NULL or not aligned where `count` is not 0.
int conic_tx_burst(struct conic_queue *queue,
                   const struct conic_buf *bufs,
                   unsigned int count);

// Receives up to `count` packets into `bufs`. Their buffers are the program's. Never waits. One thread at a time.
//
// Returns how many; or `CONIC_ERROR_ARGUMENT` if `queue` is NULL, or `bufs` is NULL or not aligned where `count` is not 0.
int conic_rx_burst(struct conic_queue *queue,
                   struct conic_buf *bufs,
                   unsigned int count);

// Says what a queue has done. `counters` has room for `size` bytes, `sizeof(struct conic_counters)`. One thread at a time.
//
// Returns 0, or `CONIC_ERROR_ARGUMENT` if one is NULL, `counters` is not aligned, or `size` is less than the structure ever had.
int conic_get_counters(struct conic_queue *queue,
                       struct conic_counters *counters,
                       size_t size);

// What a status means, in a few words; never NULL. The text is constant and belongs to the library. Any thread.
const char *conic_strerror(int status);

// Waits until `conic_rx_burst` has a packet to give: looks again for 50 microseconds, then sleeps until the NIC rings. `timeout` is
// how many nanoseconds at the most; 0 looks once, and a negative one waits for as long as it takes. While the daemon is gone
// it waits for it to come back, and goes on. It also ends when a handler of a signal has run. One thread at a time.
//
// Returns 1 if there is a packet, 0 if there is none; or `CONIC_ERROR_ARGUMENT` if `queue` is NULL.
int conic_wait(struct conic_queue *queue,
               int64_t timeout);

// A descriptor for `poll`, `epoll` or an event loop, by which a program waits for several queues, or for a queue and something
// else. It is readable when the NIC has rung for this queue, after `conic_arm` asked for that; and now and then while the daemon
// is gone. It is the same for as long as the queue lives, whatever becomes of the daemon. It belongs to the library: it is
// neither read nor closed. One thread at a time.
//
// Returns the descriptor; `CONIC_ERROR_SYSTEM` if the kernel gives none; or `CONIC_ERROR_ARGUMENT` if `queue` is NULL.
int conic_get_fd(struct conic_queue *queue);

// Asks the NIC to ring at the next packet, before the program sleeps on the descriptor of `conic_get_fd`. When it has woken, for
// whatever reason, it calls `conic_disarm`, then `conic_rx_burst` until that gives nothing, and then this again. One thread at a
// time.
//
// Returns 0 if the program may sleep; 1 if there is a packet already, and nothing was asked for; `CONIC_ERROR_SYSTEM` if the
// kernel has no descriptor to give; or `CONIC_ERROR_ARGUMENT` if `queue` is NULL.
int conic_arm(struct conic_queue *queue);

// Takes back what `conic_arm` asked for: the NIC does not ring, and the descriptor is not readable any more. Looks after the
// connection where the daemon is gone, without waiting for it: each time a step further. One thread at a time.
//
// Returns 0; `CONIC_ERROR_SYSTEM` if the kernel refuses; or `CONIC_ERROR_ARGUMENT` if `queue` is NULL.
int conic_disarm(struct conic_queue *queue);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CONIC_H */
