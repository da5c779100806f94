/* Latencies in ticks, log-linear: 64 buckets an octave, so a value is known to 0.8%. */
#ifndef CONIC_PEERS_HISTOGRAM_H
#define CONIC_PEERS_HISTOGRAM_H

#include <stdint.h>
#include <string.h>

#define BUCKET_BITS 6u
#define BUCKETS ((64u - BUCKET_BITS + 1) << BUCKET_BITS)

struct histogram {
    uint64_t count, minimum;
    uint64_t bucket[BUCKETS];
};

static inline void histogram_clear(struct histogram *histogram)
{
    memset(histogram, 0, sizeof *histogram);
    histogram->minimum = UINT64_MAX;
}

static inline unsigned histogram_shift(uint64_t value)
{
    unsigned bits = 63u - (unsigned)__builtin_clzll(value | 1);
    return bits > BUCKET_BITS ? bits - BUCKET_BITS : 0;
}

static inline void histogram_add(struct histogram *histogram, uint64_t value)
{
    unsigned shift = histogram_shift(value);
    histogram->bucket[(shift << BUCKET_BITS) + (value >> shift)]++;
    histogram->minimum = value < histogram->minimum ? value : histogram->minimum;
    histogram->count++;
}

/* The middle of the bucket that holds the given share (0 to 1) of all values; 0 when empty. */
static inline double histogram_quantile(const struct histogram *histogram, double share)
{
    uint64_t rank = (uint64_t)(share * (double)histogram->count), seen = 0;
    for (unsigned index = 0; index < BUCKETS; index++) {
        seen += histogram->bucket[index];
        if (seen > rank) {
            unsigned shift = index < (2u << BUCKET_BITS) ? 0 : (index >> BUCKET_BITS) - 1;
            uint64_t low = (uint64_t)(index - (shift << BUCKET_BITS)) << shift;
            return (double)low + (double)((1ull << shift) - 1) / 2;
        }
    }
    return 0;
}

#endif
