/* What the driver links to: functions of the Rust crate beside it, whose documentation says what each does. */
#ifndef PORT_H
#define PORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Sizes of buffers: small, large, jumbo. */
#define CONIC_CLASSES 3
#define CONIC_SMALL 0
#define CONIC_LARGE 1
#define CONIC_JUMBO 2

/* Segments of a packet at most. */
#define CONIC_MOST_SEGMENTS 4

struct conic_port;
struct conic_half;
struct conic_memory;

/* A packet, or a segment of one: bits 0..40 of the word are its address, 40..48 flags, 48..64 its length. */
struct conic_packet {
	uint64_t word;
	uint64_t metadata;
};

#define CONIC_VALID (UINT64_C(1) << 40)
#define CONIC_NEXT (UINT64_C(1) << 42)

/* Bits of a packet's metadata, which stands in its first segment; `conic_interface::metadata` says what each means. */
#define CONIC_METADATA_BEGUN (UINT64_C(1) << 48)
#define CONIC_METADATA_LARGE (UINT64_C(1) << 50)
#define CONIC_METADATA_VLAN (UINT64_C(1) << 51)
#define CONIC_METADATA_HASH (UINT64_C(1) << 52)
#define CONIC_METADATA_TRANSPORT_GOOD (UINT64_C(1) << 53)

struct conic_wishes {
	const char *path;
	const char *network;
	const char *name;
	uint32_t queues;
	uint8_t mac[6];
	uint64_t descriptors;
	uint64_t buffers[CONIC_CLASSES];
	uint64_t headroom;
	uint64_t places;
	bool joins;
};

struct conic_port_state {
	bool up;
	uint64_t reconnects;
	uint32_t longest_frame;
	bool promiscuous;
};

enum conic_granted { CONIC_GRANTED, CONIC_NOT_GRANTED, CONIC_UNSAID };

struct conic_half_faults {
	uint64_t ring;
	uint64_t not_a_buffer;
	uint64_t freed_twice;
};

struct conic_class {
	uint64_t start;
	uint64_t bytes;
	uint64_t count;
	uint64_t shift;
	uint64_t room;
	uint64_t headroom;
	uint64_t places;
};

struct conic_layout {
	uint8_t *base;
	uint64_t bytes;
	struct conic_class classes[CONIC_CLASSES];
};

struct conic_port *conic_port_open(const struct conic_wishes *wishes, struct conic_half **senders,
				   struct conic_half **receivers, char *error, size_t error_bytes);
void conic_port_close(struct conic_port *port);
bool conic_port_limit(const struct conic_port *port, uint32_t longest, char *error, size_t error_bytes);
bool conic_port_set_mac(const struct conic_port *port, const uint8_t (*mac)[6], char *error, size_t error_bytes);
enum conic_granted conic_port_set_promiscuous(const struct conic_port *port, bool on, char *error, size_t error_bytes);
void conic_port_look(const struct conic_port *port, struct conic_port_state *state);

void conic_half_close(struct conic_half *half);
uint32_t conic_half_receive(struct conic_half *half, struct conic_packet *out, uint32_t most);
uint32_t conic_half_send(struct conic_half *half, const struct conic_packet *packets, uint32_t count);
uint32_t conic_half_allocate(struct conic_half *half, uint64_t bytes, uint64_t *out, uint32_t count);
void conic_half_free(struct conic_half *half, const uint64_t *buffers, uint32_t count);
bool conic_half_is_stale(const struct conic_half *half);
bool conic_half_is_up(const struct conic_half *half);
bool conic_half_renew(struct conic_half *half);
struct conic_memory *conic_half_memory(const struct conic_half *half);
uint32_t conic_half_waiting(const struct conic_half *half, uint32_t most);
uint32_t conic_half_room(struct conic_half *half);
bool conic_half_arm(struct conic_half *half);
void conic_half_disarm(struct conic_half *half);
int conic_half_bell(const struct conic_half *half);
void conic_half_faults(const struct conic_half *half, struct conic_half_faults *faults);

void conic_memory_layout(const struct conic_memory *memory, struct conic_layout *layout);
uint32_t conic_memory_take(const struct conic_memory *memory, uint32_t class, uint64_t *from, uint64_t *out,
			   uint32_t count);
uint32_t conic_memory_give(const struct conic_memory *memory, const uint64_t *buffers, uint32_t count);
uint64_t conic_memory_free(const struct conic_memory *memory, uint32_t class);
void conic_memory_close(struct conic_memory *memory);

static inline uint64_t conic_packet_address(const struct conic_packet *packet)
{
	return packet->word & ((UINT64_C(1) << 40) - 1);
}

static inline uint16_t conic_packet_length(const struct conic_packet *packet)
{
	return packet->word >> 48;
}

/* The same with a VLAN tag's control information. */
static inline uint64_t conic_metadata_with_vlan(uint64_t metadata, uint16_t control)
{
	return metadata | CONIC_METADATA_VLAN | (uint64_t)control << 32;
}

static inline uint16_t conic_metadata_vlan(uint64_t metadata)
{
	return metadata >> 32;
}

/* Where the transport header begins, in bytes from the packet's beginning, and where its checksum lies, from there. */
static inline uint8_t conic_metadata_start(uint64_t metadata)
{
	return metadata;
}

static inline uint8_t conic_metadata_offset(uint64_t metadata)
{
	return metadata >> 8;
}

/* Bytes of payload of each packet that a large one stands for. */
static inline uint16_t conic_metadata_size(uint64_t metadata)
{
	return metadata >> 16;
}

/* A packet that stands for several of `size` bytes of payload, with its checksum begun: that lies `offset` bytes from `start`. */
static inline uint64_t conic_metadata_of_large(uint8_t start, uint8_t offset, uint16_t size)
{
	return start | (uint64_t)offset << 8 | (uint64_t)size << 16 | CONIC_METADATA_BEGUN | CONIC_METADATA_LARGE;
}

static inline struct conic_packet conic_packet_of(uint64_t address, uint16_t length)
{
	return (struct conic_packet){ .word = address | CONIC_VALID | (uint64_t)length << 48 };
}

#endif
