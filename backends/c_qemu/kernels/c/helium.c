/* Processors with Helium (Cortex-M55, M85): sixteen products of 8 bits at a time; rounding and clamping of four. */
typedef int8_t packed; /* [4 pixels][depth] */
typedef struct {
    packed *to;
    int depth;
} packing;
INLINE packing packing_of(const struct convolution *l, packed *to, int slot) {
    return (packing){to + slot * l->depth, l->depth};
}
INLINE void put_value(packing *at, int32_t value) {
    *at->to++ = (packed)value;
}
/* Words of four pixels lie behind the pixels. */
INLINE uint32_t *words_of(const struct convolution *l, packed *scratch) {
    return (uint32_t *)scratch + l->depth;
}
INLINE void unpack(const struct convolution *l, packed *to) {
    const int8_t *from = (const int8_t *)words_of(l, to);
    const int depth = l->depth;
    int i = 0;
#if defined(__ARM_FEATURE_MVE)
    for (; i + 16 <= depth; i += 16, to += 16, from += 64) {
        const int8x16x4_t four = vld4q_s8(from);
        vstrbq_s8(to, four.val[0]), vstrbq_s8(to + depth, four.val[1]);
        vstrbq_s8(to + 2 * depth, four.val[2]), vstrbq_s8(to + 3 * depth, four.val[3]);
    }
#endif
    for (; i < depth; i++, to++, from += 4)
        to[0] = from[0], to[depth] = from[1], to[2 * depth] = from[2], to[3 * depth] = from[3];
}
#if defined(__ARM_FEATURE_MVE)
INLINE void store_four(int8_t *y, int32x4_t sums, float scale, int32_t zero, int count) {
    float32x4_t values = vmulq_n_f32(vcvtq_f32_s32(sums), scale);
#if defined(NET_WIDE_SCALES)
    values = vmaxnmq_f32(vminnmq_f32(values, vdupq_n_f32(1000.0f)), vdupq_n_f32(-1000.0f));
#endif
    int32x4_t made = vaddq_n_s32(vcvtnq_s32_f32(values), zero);
    made = vminq_s32(vmaxq_s32(made, vdupq_n_s32(-128)), vdupq_n_s32(127));
    if (count >= 4) {
        vstrbq_s32(y, made);
    } else {
        vstrbq_p_s32(y, made, vctp32q((uint32_t)count));
    }
}
#endif
/* Weights: [channels][depth]. */
SHARED void multiply(const struct convolution *l, int group, const packed *pixels, int8_t *y, int plane, int count) {
    const int8_t *weight = l->weights + group * l->weights_step;
    const int depth = l->depth;
    for (int c = 0; c < l->out_channels; c++, y += plane, weight += depth) {
        const int at = group * l->channels_step + c;
        int32_t a0 = l->biases[at], a1 = a0, a2 = a0, a3 = a0;
#if defined(__ARM_FEATURE_MVE)
        const packed *x0 = pixels, *x1 = x0 + depth, *x2 = x1 + depth, *x3 = x2 + depth;
        const int8_t *from = weight;
        for (int left = depth >> 4; left; left--, from += 16, x0 += 16, x1 += 16, x2 += 16, x3 += 16) {
            const int8x16_t w = vldrbq_s8(from);
            a0 = vmladavaq_s8(a0, w, vldrbq_s8(x0)), a1 = vmladavaq_s8(a1, w, vldrbq_s8(x1));
            a2 = vmladavaq_s8(a2, w, vldrbq_s8(x2)), a3 = vmladavaq_s8(a3, w, vldrbq_s8(x3));
        }
        if (depth & 15) {
            const mve_pred16_t some = vctp8q(depth & 15);
            const int8x16_t w = vldrbq_z_s8(from, some);
            a0 = vmladavaq_s8(a0, w, vldrbq_z_s8(x0, some)), a1 = vmladavaq_s8(a1, w, vldrbq_z_s8(x1, some));
            a2 = vmladavaq_s8(a2, w, vldrbq_z_s8(x2, some)), a3 = vmladavaq_s8(a3, w, vldrbq_z_s8(x3, some));
        }
        int32x4_t sums = vdupq_n_s32(a0);
        sums = vsetq_lane_s32(a1, sums, 1), sums = vsetq_lane_s32(a2, sums, 2), sums = vsetq_lane_s32(a3, sums, 3);
        store_four(y, sums, l->scales[at], l->y_zero, count);
#else
        for (int i = 0; i < depth; i++) {
            a0 += weight[i] * pixels[i], a1 += weight[i] * pixels[depth + i];
            a2 += weight[i] * pixels[2 * depth + i], a3 += weight[i] * pixels[3 * depth + i];
        }
        store(y, a0, a1, a2, a3, l->scales[at], zero_point(l->y_zero), count);
#endif
    }
}

typedef int8_t cell;
typedef int8_t tap;
INLINE cell *rows_in(const struct convolution *l, packed *scratch) {
    (void)l;
    return scratch;
}
INLINE const tap *taps_of(const struct convolution *l, int channel, packed *scratch) {
    (void)scratch;
    return l->weights + channel * l->kernel_h * l->kernel_w;
}
INLINE void widen(cell *to, const int8_t *from, uint32_t count) {
#if defined(__ARM_FEATURE_MVE)
    for (int left = (int)count; left > 0; left -= 16, to += 16, from += 16) {
        const mve_pred16_t some = vctp8q((uint32_t)left);
        vstrbq_p_s8(to, vldrbq_z_s8(from, some), some);
    }
#else
    memcpy(to, from, count);
#endif
}
#if defined(__ARM_FEATURE_MVE)
/* Eight neighbours of a row, or four of them. */
INLINE void eight(const struct convolution *l, const tap *taps, const cell *row, int height, int width, int next,
                  uint32x4_t apart, int32x4_t *sums) {
    for (int i = 0; i < height; i++, row += l->dilation_h * l->row_step)
        for (int j = 0; j < width; j++) {
            const cell *const from = row + j * l->dilation_w;
            const int32_t value = *taps++;
            if (l->stride_w == 1) {
                sums[0] = vmlaq_n_s32(sums[0], vldrbq_s32(from), value);
                if (next) sums[1] = vmlaq_n_s32(sums[1], vldrbq_s32(from + 4), value);
            } else {
                sums[0] = vmlaq_n_s32(sums[0], vldrbq_gather_offset_s32(from, apart), value);
                if (next) sums[1] = vmlaq_n_s32(sums[1], vldrbq_gather_offset_s32(from + 4 * l->stride_w, apart), value);
            }
        }
}
INLINE void row_of_size(const struct convolution *l, const tap *taps, const cell *row, int32_t bias, float scale,
                        int8_t *y, int height, int width) {
    const uint32x4_t apart = vmulq_n_u32(vidupq_n_u32(0, 1), (uint32_t)l->stride_w);
    for (int left = l->out_w; left > 0; left -= 8, y += 8, row += 8 * l->stride_w) {
        int32x4_t sums[2] = {vdupq_n_s32(bias), vdupq_n_s32(bias)};
        if (left > 4) {
            eight(l, taps, row, height, width, 1, apart, sums);
            store_four(y + 4, sums[1], scale, l->y_zero, left - 4);
        } else {
            eight(l, taps, row, height, width, 0, apart, sums);
        }
        store_four(y, sums[0], scale, l->y_zero, left);
    }
}
#endif
SHARED void row_of_windows(const struct convolution *l, const tap *taps, const cell *row, int32_t bias, float scale,
                           int8_t *y) {
#if defined(__ARM_FEATURE_MVE)
    if (l->kernel_h == 3 && l->kernel_w == 3) {
        row_of_size(l, taps, row, bias, scale, y, 3, 3);
    } else {
        row_of_size(l, taps, row, bias, scale, y, l->kernel_h, l->kernel_w);
    }
#else
    const int step = l->stride_w;
    for (int left = l->out_w; left > 0; left -= 4, y += 4, row += 4 * step) {
        const tap *tap = taps;
        const cell *from = row;
        int32_t sums[4] = {bias, bias, bias, bias};
        for (int i = 0; i < l->kernel_h; i++, from += l->dilation_h * l->row_step)
            for (int j = 0; j < l->kernel_w; j++, tap++)
                for (int k = 0; k < 4; k++) sums[k] += *tap * from[j * l->dilation_w + k * step];
        store(y, sums[0], sums[1], sums[2], sums[3], scale, zero_point(l->y_zero), left);
    }
#endif
}

/* Weights: [rows][inputs]. */
INLINE void dot_products(const int8_t *weight, const int8_t *x, int inputs, int rows, int32_t *sums) {
#if defined(__ARM_FEATURE_MVE)
    for (int left = inputs; left > 0; left -= 16, weight += 16, x += 16) {
        const mve_pred16_t some = vctp8q((uint32_t)left);
        const int8x16_t values = vldrbq_z_s8(x, some);
#pragma GCC unroll 4
        for (int i = 0; i < rows; i++) sums[i] = vmladavaq_s8(sums[i], values, vldrbq_z_s8(weight + i * inputs, some));
    }
#else
    for (int j = 0; j < inputs; j++)
        for (int i = 0; i < rows; i++) sums[i] += x[j] * weight[i * inputs + j];
#endif
}
#define ROWS_AT_ONCE 4
#define ROW_BYTES(inputs) (inputs)
