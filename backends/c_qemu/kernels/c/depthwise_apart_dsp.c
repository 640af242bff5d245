/* Depthwise convolutions three by three with the DSP extension where neighbours lie two apart: rows are read as they are, of
 * eight values SXTB16 gives the first and third ones of two windows at once. For rows that whole blocks of four outputs
 * fill, with at most one value of padding before them. */
typedef uint32_t tap; /* for each row: (first, third), then the second */
#define TAPS 6
/* To sums b0, b1, b2 come the products of a row; those of the first row begin with a3, which holds the bias. */
#define ROW_OF_THREE(load_first, row, taps, fourth, ninth, b0, b1, b2) \
    "ldrd %[f], %[s], [%[taps], #" taps "]\n" load_first(row) \
    "sxtb16 %[q], %[p]\n sxtb16 %[p], %[p], ror #8\n" \
    "smlad %[a0], %[q], %[f], %[" b0 "]\n smlabb %[a0], %[p], %[s], %[a0]\n" \
    "smlatb %[a1], %[q], %[f], %[" b1 "]\n smlatb %[a1], %[p], %[s], %[a1]\n" \
    "ldr %[p], [%[" row "], #" fourth "]\n sxtb16 %[q], %[p]\n sxtb16 %[p], %[p], ror #8\n" \
    "smlabt %[a1], %[q], %[f], %[a1]\n smlad %[a2], %[q], %[f], %[" b2 "]\n smlabb %[a2], %[p], %[s], %[a2]\n" \
    "smlatb %[a3], %[q], %[f], %[a3]\n smlatb %[a3], %[p], %[s], %[a3]\n" \
    "ldrsb %[p], [%[" row "], #" ninth "]\n smlabt %[a3], %[p], %[f], %[a3]\n"
#define AS_IT_IS(row) "ldr %[p], [%[" row "]]\n"
#define BEHIND_PADDING(row) "ldr %[p], [%[" row "]]\n orr %[p], %[zero], %[p], lsl #8\n"
#define THREE_ROWS_APART(load_first, fourth, ninth, ...) \
    __asm__(ROW_OF_THREE(load_first, "first", "0", fourth, ninth, "a3", "a3", "a3") \
            ROW_OF_THREE(load_first, "second", "8", fourth, ninth, "a0", "a1", "a2") \
            ROW_OF_THREE(load_first, "third", "16", fourth, ninth, "a0", "a1", "a2") \
            : [a0] "=&r"(a0), [a1] "=&r"(a1), [a2] "=&r"(a2), [a3] "+r"(a3), [f] "=&r"(f), [s] "=&r"(s), [p] "=&r"(p), \
              [q] "=&r"(q) \
            : [taps] "r"(taps), [first] "r"(rows[0] + at), [second] "r"(rows[1] + at), [third] "r"(rows[2] + at), \
              ##__VA_ARGS__ \
            : "memory")
/* Four windows whose first values lie from `at` on; with `padded` one value of padding comes before that. */
INLINE void three_apart(const tap *taps, const int8_t *const *rows, int at, uint32_t zero, int padded, int32_t *sums) {
    int32_t a0, a1, a2, a3 = sums[0];
#if defined(__ARM_FEATURE_DSP)
    uint32_t f, s, p, q;
    if (padded) {
        THREE_ROWS_APART(BEHIND_PADDING, "3", "7", [zero] "r"(zero));
    } else {
        THREE_ROWS_APART(AS_IT_IS, "4", "8");
    }
#else
    a0 = a1 = a2 = a3;
    for (int i = 0; i < 3; i++) {
        const int8_t *const row = rows[i] + at;
        const uint32_t word = padded ? zero | load(row) << 8 : load(row), f = taps[2 * i], s = taps[2 * i + 1];
        uint32_t q = sxtb16(word), p = sxtb16_high(word);
        a0 = smlad(q, f, a0), a0 = smlad(p & 0xFFFF, s, a0);
        a1 = smlatb(q, f, a1), a1 = smlatb(p, s, a1);
        q = sxtb16(load(row + 4 - padded)), p = sxtb16_high(load(row + 4 - padded));
        a1 = smlabt(q, f, a1), a2 = smlad(q, f, a2), a2 = smlad(p & 0xFFFF, s, a2);
        a3 = smlatb(q, f, a3), a3 = smlatb(p, s, a3), a3 = smlabt((uint32_t)row[8 - padded], f, a3);
    }
#endif
    sums[0] = a0, sums[1] = a1, sums[2] = a2, sums[3] = a3;
}
INLINE void channel_apart(const struct convolution *l, const int8_t *x, int channel, int8_t *y, packed *scratch) {
    const int back = l->descending, blocks = l->out_w / 4, width = l->in_w;
    const int8_t *const weight = l->weights + 9 * channel;
    for (int i = 0; i < 3; i++) {
        scratch[2 * i] = low_halves((uint32_t)weight[3 * i], (uint32_t)weight[3 * i + 2]);
        scratch[2 * i + 1] = (uint16_t)weight[3 * i + 1];
    }
    const int8_t *const outside = (const int8_t *)(scratch + TAPS);
    const int32_t bias = l->biases[channel], zero = zero_to_store(l->y_zero);
    const float scale = l->scales[channel];
    int top = back ? (l->out_h - 1) * l->stride_h - l->pad_top : -l->pad_top;
    y += back ? (l->out_h - 1) * l->out_w : 0;
    for (int i = l->out_h; i; i--) {
        const int8_t *const row = x + top * width;
        const int8_t *const rows[3] = {
            (unsigned)top < l->in_h ? row : outside,
            (unsigned)(top + 1) < l->in_h ? row + width : outside,
            (unsigned)(top + 2) < l->in_h ? row + 2 * width : outside,
        };
        int at = (back ? 8 * (blocks - 1) : 0) - l->pad_left;
        int8_t *to = y + (back ? l->out_w - 4 : 0);
        for (int j = blocks; j; j--, at += back ? -8 : 8, to += back ? -4 : 4) {
            int32_t sums[4] = {bias};
            if (at < 0) {
                three_apart(scratch, rows, 0, (uint8_t)l->x_zero, 1, sums);
            } else {
                three_apart(scratch, rows, at, 0, 0, sums);
            }
            store(to, sums[0], sums[1], sums[2], sums[3], scale, zero, 4);
        }
        y += back ? -l->out_w : l->out_w, top += back ? -l->stride_h : l->stride_h;
    }
}
SHARED void convolve_apart(const struct convolution *l, const int8_t *x, int8_t *y, packed *scratch) {
    WRITES;
    const int count = l->groups * l->out_channels;
    memset(scratch + TAPS, l->x_zero, l->in_w); /* a row of padding */
    for (int i = 0; i < count; i++) {
        const int channel = l->descending ? count - 1 - i : i;
        channel_apart(l, x + channel / l->out_channels * l->in_h * l->in_w, channel, y + channel * l->out_h * l->out_w,
                      scratch);
    }
}
