/* int8 kernels, channels first (NCHW). Sums are exact integers; each is scaled in float32 and rounded to even, as
 * onnxruntime does, so outputs equal its own bit for bit. */
#if !defined(__clang__)
#pragma GCC optimize("fp-contract=off", "no-strict-aliasing")
#if defined(NET_SMALL) /* code bytes before speed */
#pragma GCC optimize("Os")
#endif
#else
#pragma STDC FP_CONTRACT OFF
#endif
#pragma GCC diagnostic ignored "-Woverlength-strings" /* of ISO C's least: weights are long strings */
#include <math.h>
#include <stdint.h>
#include <string.h>
#if defined(__ARM_FEATURE_MVE)
#include <arm_mve.h>
#endif

#define INLINE static inline __attribute__((always_inline, unused))
#define SHARED static __attribute__((noinline, unused)) /* one copy for all layers: code stays small */
/* GCC 12 can take a function whose constants it knows for one that writes nothing, and leave its calls out. */
#define WRITES __asm__ volatile("" : : : "memory")

INLINE int8_t saturate(int32_t value) {
#if defined(__ARM_FEATURE_SAT)
    __asm__("ssat %0, #8, %1" : "=r"(value) : "r"(value));
    return (int8_t)value;
#else
    return (int8_t)(value < -128 ? -128 : value > 127 ? 127 : value);
#endif
}
INLINE uint32_t load(const void *from) {
    uint32_t word;
    memcpy(&word, from, 4);
    return word;
}
