/* Processors with Helium (Cortex-M55, M85): sixteen products of 8 bits at a time; rounding and clamping of four. */
typedef int8_t packed; /* [depth / 16][4 pixels][16] */
#define CHUNKS(depth) (((depth) + 15) / 16)
#if defined(__ARM_FEATURE_MVE)
/* In assembly, and without asking first whether all lanes are meant: GCC 12 takes a store of some lanes by intrinsics
   for one of all, leaves out what was stored before, and where a store of all stands beside it keeps that alone. */
INLINE void store_some_bytes(int8_t *y, int8x16_t values, int count) {
    __asm__ volatile("vctp.8 %[count]\n vpst\n vstrbt.8 %q[values], [%[y]]"
                     :
                     : [values] "w"(values), [count] "r"(count), [y] "r"(y)
                     : "memory");
}
INLINE void copy_some_bytes(int8_t *y, const int8_t *x, int count) {
    __asm__ volatile("vctp.8 %[count]\n vpstt\n vldrbt.8 q0, [%[x]]\n vstrbt.8 q0, [%[y]]"
                     :
                     : [x] "r"(x), [count] "r"(count), [y] "r"(y)
                     : "memory", "q0");
}
INLINE void store_some_words(int8_t *y, int32x4_t values, int count) {
    __asm__ volatile("vctp.32 %[count]\n vpst\n vstrbt.32 %q[values], [%[y]]"
                     :
                     : [values] "w"(values), [count] "r"(count), [y] "l"(y)
                     : "memory");
}
INLINE int32x4_t rounded_four(int32x4_t sums, float32x4_t scales, int32_t zero) {
    float32x4_t values = vmulq_f32(vcvtq_f32_s32(sums), scales);
#if defined(NET_HUGE_SUMS)
    values = vmaxnmq_f32(vminnmq_f32(values, vdupq_n_f32(1000.0f)), vdupq_n_f32(-1000.0f));
#endif
    const int32x4_t made = vaddq_n_s32(vcvtnq_s32_f32(values), zero);
    return vminq_s32(vmaxq_s32(made, vdupq_n_s32(-128)), vdupq_n_s32(127));
}
INLINE void store_four(int8_t *y, int32x4_t sums, float scale, int32_t zero, int count) {
    store_some_words(y, rounded_four(sums, vdupq_n_f32(scale), zero), count);
}
/* Two words of 16 weights by 16 values of four pixels; all even registers hold sums. */
#define TWO_BY_FOUR(weights) \
    weights "vldrb.8 q2, [%[pixel]], #16\n vldrb.8 q3, [%[pixel]], #16\n" \
    "vmladava.s8 %[a0], q0, q2\n vmladava.s8 %[b0], q1, q2\n vldrb.8 q2, [%[pixel]], #16\n" \
    "vmladava.s8 %[a1], q0, q3\n vmladava.s8 %[b1], q1, q3\n vldrb.8 q3, [%[pixel]], #16\n" \
    "vmladava.s8 %[a2], q0, q2\n vmladava.s8 %[b2], q1, q2\n" \
    "vmladava.s8 %[a3], q0, q3\n vmladava.s8 %[b3], q1, q3\n"
#endif
/* Weights: [channels][depth]. */
SHARED void multiply(const struct convolution *l, int group, const packed *pixels, int8_t *y, int plane, int count) {
    WRITES;
    const int8_t *weight = l->weights + group * l->weights_step;
    const int32_t *bias = l->biases + group * l->channels_step;
    const float *scale = l->scales + group * l->channels_step;
    const int depth = l->depth, zero = l->y_zero;
    for (int left = l->out_channels; left > 0; left -= 2, y += 2 * plane, bias += 2, scale += 2) {
        const int8_t *second = left > 1 ? weight + depth : weight, *const next = weight + 2 * depth;
        int32_t a0 = bias[0], a1 = a0, a2 = a0, a3 = a0, b0 = left > 1 ? bias[1] : 0, b1 = b0, b2 = b0, b3 = b0;
#if defined(__ARM_FEATURE_MVE)
        const packed *pixel = pixels;
        const packed *const end = pixels + (depth >> 4) * 64;
        if (pixel != end)
            __asm__("1:\n" TWO_BY_FOUR("vldrb.8 q0, [%[weight]], #16\n vldrb.8 q1, [%[second]], #16\n")
                    "cmp %[pixel], %[end]\n bne 1b"
                    : [a0] "+Te"(a0), [a1] "+Te"(a1), [a2] "+Te"(a2), [a3] "+Te"(a3), [b0] "+Te"(b0), [b1] "+Te"(b1),
                      [b2] "+Te"(b2), [b3] "+Te"(b3), [pixel] "+r"(pixel), [weight] "+r"(weight), [second] "+r"(second)
                    : [end] "r"(end)
                    : "cc", "memory", "q0", "q1", "q2", "q3");
        if (depth & 15)
            __asm__("vctp.8 %[some]\n" TWO_BY_FOUR("vpstt\n vldrbt.8 q0, [%[weight]]\n vldrbt.8 q1, [%[second]]\n")
                    : [a0] "+Te"(a0), [a1] "+Te"(a1), [a2] "+Te"(a2), [a3] "+Te"(a3), [b0] "+Te"(b0), [b1] "+Te"(b1),
                      [b2] "+Te"(b2), [b3] "+Te"(b3), [pixel] "+r"(pixel)
                    : [some] "r"(depth & 15), [weight] "r"(weight), [second] "r"(second)
                    : "memory", "q0", "q1", "q2", "q3");
        const int32x4_t a = {a0, a1, a2, a3}, b = {b0, b1, b2, b3};
        store_four(y, a, scale[0], zero, count);
        if (left > 1) store_four(y + plane, b, scale[1], zero, count);
#else
        for (int i = 0; i < depth; i++) {
            const packed *const at = pixels + (i >> 4) * 64 + (i & 15);
            a0 += weight[i] * at[0], a1 += weight[i] * at[16], a2 += weight[i] * at[32], a3 += weight[i] * at[48];
            b0 += second[i] * at[0], b1 += second[i] * at[16], b2 += second[i] * at[32], b3 += second[i] * at[48];
        }
        store(y, a0, a1, a2, a3, scale[0], zero_to_store(zero), count);
        if (left > 1) store(y + plane, b0, b1, b2, b3, scale[1], zero_to_store(zero), count);
#endif
        weight = next;
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
INLINE void copy_row(const struct convolution *l, cell *row, const int8_t *from) {
#if defined(__ARM_FEATURE_MVE)
    const int8x16_t zeros = vdupq_n_s8((int8_t)l->x_zero);
    int left = l->row_step;
    for (; left >= 16; left -= 16) vstrbq_s8(row + left - 16, zeros);
    store_some_bytes(row, zeros, left);
    if (from == 0) return;
    row += l->pad_left;
    for (left = l->in_w; left > 0; left -= 16, row += 16, from += 16)
        copy_some_bytes(row, from, left);
#else
    memset(row, l->x_zero, l->row_step);
    if (from) memcpy(row + l->pad_left, from, l->in_w);
#endif
}
#if defined(__ARM_FEATURE_MVE)
/* Eight neighbours of a row, or four of them; `apart` says where each lies if they are no neighbours in the input. */
INLINE void eight(const struct convolution *l, const tap *taps, const cell *row, int height, int width, int next,
                  int step, uint32x4_t apart, int32x4_t *sums) {
#pragma GCC unroll 3
    for (int i = 0; i < height; i++, row += l->dilation_h * l->row_step)
#pragma GCC unroll 3
        for (int j = 0; j < width; j++) {
            const cell *const from = row + j * l->dilation_w;
            const int32_t value = *taps++;
            __asm__ volatile("" ::: "memory"); /* GCC would load every value first, and spill them */
            if (step == 1) {
                sums[0] = vmlaq_n_s32(sums[0], vldrbq_s32(from), value);
                if (next) sums[1] = vmlaq_n_s32(sums[1], vldrbq_s32(from + 4), value);
            } else {
                sums[0] = vmlaq_n_s32(sums[0], vldrbq_gather_offset_s32(from, apart), value);
                if (next) sums[1] = vmlaq_n_s32(sums[1], vldrbq_gather_offset_s32(from + 4 * step, apart), value);
            }
        }
}
INLINE void rows_of_size(const struct convolution *l, const tap *taps, const cell *rows, int count, int32_t bias,
                         float scale, int8_t *y, int height, int width, int step) {
    const uint32x4_t apart = vmulq_n_u32(vidupq_n_u32(0, 1), (uint32_t)step);
    for (int h = 0; h < count; h++, rows += l->stride_h * l->row_step) {
        const cell *row = rows;
        for (int left = l->out_w; left > 0; left -= 8, row += 8 * step) {
            int32x4_t sums[2] = {vdupq_n_s32(bias), vdupq_n_s32(bias)};
            if (left > 4) {
                eight(l, taps, row, height, width, 1, step, apart, sums);
                store_four(y + 4, sums[1], scale, l->y_zero, left - 4);
            } else {
                eight(l, taps, row, height, width, 0, step, apart, sums);
            }
            store_four(y, sums[0], scale, l->y_zero, left);
            y += left < 8 ? left : 8;
        }
    }
}
#endif
#if defined(NET_SHORT_ROWS) && defined(__ARM_FEATURE_MVE)
/* Several short rows as one, eight outputs at a time: each lane gathers its own window, in whichever row it lies. */
INLINE void as_one_of_size(const struct convolution *l, const tap *taps, const cell *rows, int count, int32_t bias,
                           float scale, int8_t *y, int height, int width) {
    const int width_out = l->out_w, step = l->stride_w, span = l->row_step, down = l->dilation_h * span;
    const uint32_t over = (1u << 16) / width_out + 1, next = l->stride_h * span - width_out * step;
    uint32x4_t number = vidupq_n_u32(0, 1);
    for (int left = count * width_out; left > 0; left -= 8, y += 8) {
        const uint32x4_t more = vaddq_n_u32(number, 4);
        const uint32x4_t at = vmlaq_n_u32(vmulq_n_u32(number, step), vshrq_n_u32(vmulq_n_u32(number, over), 16), next);
        const uint32x4_t at4 = vmlaq_n_u32(vmulq_n_u32(more, step), vshrq_n_u32(vmulq_n_u32(more, over), 16), next);
        int32x4_t sums[2] = {vdupq_n_s32(bias), vdupq_n_s32(bias)};
        const tap *tap = taps;
        const cell *row = rows;
#pragma GCC unroll 3
        for (int i = 0; i < height; i++, row += down)
#pragma GCC unroll 3
            for (int j = 0; j < width; j++) {
                const cell *const from = row + j * l->dilation_w;
                const int32_t value = *tap++;
                __asm__ volatile("" ::: "memory"); /* GCC would load every value first, and spill them */
                sums[0] = vmlaq_n_s32(sums[0], vldrbq_gather_offset_s32(from, at), value);
                sums[1] = vmlaq_n_s32(sums[1], vldrbq_gather_offset_s32(from, at4), value);
            }
        store_four(y, sums[0], scale, l->y_zero, left);
        if (left > 4) store_four(y + 4, sums[1], scale, l->y_zero, left - 4);
        number = vaddq_n_u32(number, 8);
    }
}
#endif
/* `count` output rows of a channel, whose input lies in `rows`. */
SHARED void rows_of_windows(const struct convolution *l, const tap *taps, const cell *rows, int count, int32_t bias,
                            float scale, int8_t *y) {
    WRITES;
#if defined(__ARM_FEATURE_MVE)
    const int near = l->kernel_h == 3 && l->kernel_w == 3;
#if defined(NET_SHORT_ROWS)
    if (!l->by_rows && near && l->dilation_w == 1) {
        as_one_of_size(l, taps, rows, count, bias, scale, y, 3, 3);
        return;
    }
    if (!l->by_rows) {
        as_one_of_size(l, taps, rows, count, bias, scale, y, l->kernel_h, l->kernel_w);
        return;
    }
#endif
    if (near && l->dilation_w == 1 && l->stride_w == 1) {
        rows_of_size(l, taps, rows, count, bias, scale, y, 3, 3, 1);
    } else if (near) {
        rows_of_size(l, taps, rows, count, bias, scale, y, 3, 3, l->stride_w);
    } else if (l->stride_w == 1) {
        rows_of_size(l, taps, rows, count, bias, scale, y, l->kernel_h, l->kernel_w, 1);
    } else {
        rows_of_size(l, taps, rows, count, bias, scale, y, l->kernel_h, l->kernel_w, l->stride_w);
    }
#else
    const int step = l->stride_w;
    for (int h = 0; h < count; h++, rows += l->stride_h * l->row_step) {
        const cell *row = rows;
        for (int left = l->out_w; left > 0; left -= 4, row += 4 * step) {
            const tap *tap = taps;
            const cell *from = row;
            int32_t sums[4] = {bias, bias, bias, bias};
            for (int i = 0; i < l->kernel_h; i++, from += l->dilation_h * l->row_step)
                for (int j = 0; j < l->kernel_w; j++, tap++)
                    for (int k = 0; k < 4; k++) sums[k] += *tap * from[j * l->dilation_w + k * step];
            store(y, sums[0], sums[1], sums[2], sums[3], scale, zero_to_store(l->y_zero), left);
            y += left < 4 ? left : 4;
        }
    }
#endif
}

/* All outputs of one vector, `step` apart. Weights: [outputs][inputs]. */
SHARED void products(const int8_t *weight, const int32_t *bias, const float *scale, int inputs, int outputs, int y_zero,
                     const int8_t *x, int8_t *y, int step) {
    WRITES;
#if defined(__ARM_FEATURE_MVE)
    const uint32x4_t places = vmulq_n_u32(vidupq_n_u32(0, 1), (uint32_t)step);
    for (; outputs > 0; outputs -= 4, bias += 4, scale += 4, y += 4 * step) {
        const int8_t *w0 = weight, *w1 = outputs > 1 ? w0 + inputs : w0, *w2 = outputs > 2 ? w1 + inputs : w0;
        const int8_t *w3 = outputs > 3 ? w2 + inputs : w0, *values = x, *const end = x + (inputs & ~15);
        int32_t a = 0, b = 0, c = 0, d = 0;
        for (; values != end; values += 16, w0 += 16, w1 += 16, w2 += 16, w3 += 16) {
            const int8x16_t v = vldrbq_s8(values);
            a = vmladavaq_s8(a, v, vldrbq_s8(w0)), b = vmladavaq_s8(b, v, vldrbq_s8(w1));
            c = vmladavaq_s8(c, v, vldrbq_s8(w2)), d = vmladavaq_s8(d, v, vldrbq_s8(w3));
        }
        if (inputs & 15) {
            const mve_pred16_t some = vctp8q((uint32_t)(inputs & 15));
            const int8x16_t v = vldrbq_z_s8(values, some);
            a = vmladavaq_s8(a, v, vldrbq_z_s8(w0, some)), b = vmladavaq_s8(b, v, vldrbq_z_s8(w1, some));
            c = vmladavaq_s8(c, v, vldrbq_z_s8(w2, some)), d = vmladavaq_s8(d, v, vldrbq_z_s8(w3, some));
        }
        const mve_pred16_t used = vctp32q((uint32_t)outputs);
        const int32x4_t products = {a, b, c, d}, sums = vaddq_s32(products, vldrwq_z_s32(bias, used));
        vstrbq_scatter_offset_p_s32(y, places, rounded_four(sums, vldrwq_z_f32(scale, used), y_zero), used);
        weight += 4 * inputs;
    }
#else
    for (; outputs; outputs--, y += step) {
        int32_t sum = *bias++;
        for (int i = 0; i < inputs; i++) sum += x[i] * *weight++;
        *y = saturate(requantise(sum, factor_of(*scale++)) + zero_point(y_zero));
    }
#endif
}
