/* What a packet carries: a time stamp (8 bytes, TSC), a sequence number (8 bytes), then a pattern
 * that follows from the sequence number and the position. Written and read with 64-byte vectors. */
#ifndef CONIC_PEERS_PAYLOAD_H
#define CONIC_PEERS_PAYLOAD_H

#include <stdint.h>
#include <string.h>

typedef uint64_t line_t __attribute__((vector_size(64)));
typedef uint64_t loose_line_t __attribute__((vector_size(64), aligned(1), may_alias));

#define LINE 64u
#define STEP 0x9e3779b97f4a7c15ull

static inline line_t pattern_of(uint64_t sequence)
{
    const line_t lanes = {1, 3, 5, 7, 11, 13, 17, 19};
    return lanes * (sequence * STEP + 1);
}

static inline void payload_write(uint8_t *at, unsigned size, uint64_t stamp, uint64_t sequence)
{
    line_t pattern = pattern_of(sequence), first = pattern;
    first[0] = stamp;
    first[1] = sequence;
    if (size < LINE) {
        memcpy(at, &first, size);
        return;
    }
    *(loose_line_t *)at = first;
    unsigned offset = LINE;
    for (; offset + LINE <= size; offset += LINE) {
        pattern += STEP;
        *(loose_line_t *)(at + offset) = pattern;
    }
    if (offset < size) {
        pattern += STEP;
        memcpy(at + offset, &pattern, size - offset);
    }
}

/* Reads every byte. Returns zero if and only if all but the stamp is as written for `sequence`. */
static inline uint64_t payload_check(const uint8_t *at, unsigned size, uint64_t sequence)
{
    line_t pattern = pattern_of(sequence), first = pattern, wrong = {0};
    first[1] = sequence;
    if (size < LINE) {
        line_t read = first;
        memcpy(&read, at, size);
        wrong = read ^ first;
        wrong[0] = 0;
    } else {
        wrong = *(const loose_line_t *)at ^ first;
        wrong[0] = 0;
        unsigned offset = LINE;
        for (; offset + LINE <= size; offset += LINE) {
            pattern += STEP;
            wrong |= *(const loose_line_t *)(at + offset) ^ pattern;
        }
        if (offset < size) {
            pattern += STEP;
            line_t read = pattern;
            memcpy(&read, at + offset, size - offset);
            wrong |= read ^ pattern;
        }
    }
    return wrong[0] | wrong[1] | wrong[2] | wrong[3] | wrong[4] | wrong[5] | wrong[6] | wrong[7];
}

static inline uint64_t payload_word(const uint8_t *at, unsigned word)
{
    uint64_t value;
    memcpy(&value, at + 8 * word, sizeof value);
    return value;
}

/* What the NIC does where the driver does not: reads each byte once and writes it once. */
static inline void payload_copy(uint8_t *to, const uint8_t *from, unsigned size)
{
    unsigned offset = 0;
    for (; offset + LINE <= size; offset += LINE)
        *(loose_line_t *)(to + offset) = *(const loose_line_t *)(from + offset);
    if (offset < size)
        memcpy(to + offset, from + offset, size - offset);
}

#endif
