/* Depthwise convolutions with the DSP extension: rows are widened to 16 bits with their padding, each once, into a ring of
 * as many as a window spans; then no window meets an edge. Taps lie in pairs, for each channel of a group. */
typedef int16_t cell;
typedef uint32_t tap;
INLINE int is_three_by_three(const struct convolution *l) {
    return l->kernel_h == 3 && l->span_w == 3 && l->dilation_h == 1 && l->stride_w <= 2 && l->kernel_w == 3;
}
INLINE int is_five_wide(const struct convolution *l) {
    return l->span_w == 5 && l->stride_w == 1 && l->kernel_w == 5;
}
INLINE int words_of_row(const struct convolution *l) {
    return is_five_wide(l) ? 4 : (l->span_w + 1) / 2;
}
SHARED void widen_taps(const struct convolution *l, int group, packed *to) {
    WRITES;
    const int words = words_of_row(l), rows = l->out_channels * l->kernel_h;
    const int8_t *weight = l->weights + group * rows * l->kernel_w;
    const int together = is_three_by_three(l) || is_five_wide(l);
    for (int i = 0; i < rows; i++, to += words) {
        if (together) { /* each tap with the next one */
            for (int j = 0; j < words; j++, weight++) to[j] = low_halves((uint32_t)weight[0], (uint32_t)weight[1]);
            weight++;
        } else {
            memset(to, 0, 4u * words);
            for (int j = 0, at = 0; j < l->kernel_w; j++, at += l->dilation_w)
                to[at / 2] |= (uint32_t)(uint16_t)*weight++ << (at & 1 ? 16 : 0);
        }
    }
}
SHARED void fill(const struct convolution *l, cell *row, int count) {
    WRITES;
    const uint32_t zeros = low_halves((uint32_t)l->x_zero, (uint32_t)l->x_zero);
    for (; count > 1; count -= 2, row += 2) memcpy(row, &zeros, 4);
    if (count) *row = (cell)l->x_zero;
}
/* Four values to words; where padding is odd, each word begins with the last value of the one before. */
INLINE uint32_t widen_four(uint32_t *to, const int8_t *from, int odd, uint32_t before) {
    const uint32_t values = load(from), high = sxtb16_high(values);
    const uint32_t low = odd ? sxtb16_swapped(values) : sxtb16(values);
    const uint32_t first = odd ? high_halves(before, low) : low_halves(low, high);
    const uint32_t second = odd ? low_halves(high, low) : high_halves(low, high);
#if defined(__ARM_FEATURE_DSP)
    __asm__ volatile("strd %0, %1, [%2]" : : "r"(first), "r"(second), "r"(to) : "memory");
#else
    to[0] = first, to[1] = second;
#endif
    return high;
}
INLINE void widen_row(const struct convolution *l, cell *row, const int8_t *from, int odd) {
    uint32_t *to = (uint32_t *)(row + l->pad_left - odd), last = odd ? *to << 16 : 0;
    int left = l->in_w;
    for (; left >= 8; left -= 8, from += 8, to += 4)
        last = widen_four(to, from, odd, last), last = widen_four(to + 2, from + 4, odd, last);
    if (left & 4) last = widen_four(to, from, odd, last), from += 4, to += 2;
    row = (cell *)to;
    if (odd) *row++ = (cell)(last >> 16);
    for (left &= 3; left; left--) *row++ = *from++;
}
INLINE int row_below(const struct convolution *l, int row) {
    row += l->dilation_h * l->row_step;
    return row < (int)l->weights_step ? row : row - (int)l->weights_step;
}
/* By five taps of a row, each word of it read once. */
INLINE void five_taps(const tap *taps, const cell *row, int32_t *sums) {
    int32_t a0 = sums[0], a1 = sums[1], a2 = sums[2], a3 = sums[3];
#if defined(__ARM_FEATURE_DSP)
    uint32_t f, s, p, q;
    __asm__("ldrd %[f], %[s], [%[taps]]\n ldrd %[p], %[q], [%[row]], #8\n"
            "smlad %[a0], %[p], %[f], %[a0]\n smlatb %[a1], %[p], %[f], %[a1]\n smlad %[a1], %[q], %[s], %[a1]\n"
            "smlad %[a2], %[q], %[f], %[a2]\n smlatb %[a3], %[q], %[f], %[a3]\n"
            "ldrd %[f], %[p], [%[taps], #8]\n smlad %[a0], %[q], %[f], %[a0]\n ldr %[q], [%[row]]\n"
            "smlabt %[a0], %[q], %[p], %[a0]\n smlad %[a1], %[q], %[p], %[a1]\n smlad %[a2], %[q], %[f], %[a2]\n"
            "smlad %[a3], %[q], %[s], %[a3]\n ldr %[q], [%[row], #4]\n"
            "smlabt %[a2], %[q], %[p], %[a2]\n smlad %[a3], %[q], %[p], %[a3]\n"
            : [a0] "+r"(a0), [a1] "+r"(a1), [a2] "+r"(a2), [a3] "+r"(a3), [row] "+r"(row), [f] "=&r"(f), [s] "=&r"(s),
              [p] "=&r"(p), [q] "=&r"(q)
            : [taps] "r"(taps)
            : "memory");
#else
    const uint32_t p = load(row), q = load(row + 2), r = load(row + 4), s = load(row + 6);
    a0 = smlabt(r, taps[3], smlad(q, taps[2], smlad(p, taps[0], a0)));
    a1 = smlad(r, taps[3], smlad(q, taps[1], smlatb(p, taps[0], a1)));
    a2 = smlabt(s, taps[3], smlad(r, taps[2], smlad(q, taps[0], a2)));
    a3 = smlad(s, taps[3], smlad(r, taps[1], smlatb(q, taps[0], a3)));
#endif
    sums[0] = a0, sums[1] = a1, sums[2] = a2, sums[3] = a3;
}
/* Four neighbours of a row by a window of any size, two taps at a time. */
INLINE void any_window(const struct convolution *l, const tap *taps, const cell *rows, int row, int first, int32_t *sums) {
    const int words = (l->span_w + 1) / 2, step = l->stride_w;
    int32_t a = sums[0], b = sums[1], c = sums[2], d = sums[3];
    for (int i = l->kernel_h; i; i--, row = row_below(l, row)) {
        const cell *at = rows + row + first;
        if (step == 1) { /* each pair is read once for two taps */
            uint32_t p = load(at), q = load(at + 1);
            for (int j = words; j; j--) {
                const uint32_t two = *taps++;
                at += 2;
                a = smlad(two, p, a), b = smlad(two, q, b);
                p = load(at), q = load(at + 1);
                c = smlad(two, p, c), d = smlad(two, q, d);
            }
        } else {
            for (int j = words; j; j--, at += 2) {
                const uint32_t two = *taps++;
                a = smlad(two, load(at), a), b = smlad(two, load(at + step), b);
                c = smlad(two, load(at + 2 * step), c), d = smlad(two, load(at + 3 * step), d);
            }
        }
    }
    sums[0] = a, sums[1] = b, sums[2] = c, sums[3] = d;
}
INLINE void any_windows(const struct convolution *l, const tap *taps, const cell *rows, int row, int32_t bias, float scale,
                        int8_t *y) {
    const int32_t zero = zero_to_store(l->y_zero);
    for (int left = l->out_w, first = 0; left > 0; left -= 4, y += 4, first += 4 * l->stride_w) {
        int32_t sums[4] = {bias, bias, bias, bias};
        if (is_five_wide(l)) {
            const tap *of_row = taps;
            for (int i = l->kernel_h, at = row; i; i--, at = row_below(l, at), of_row += 4)
                five_taps(of_row, rows + at + first, sums);
        } else {
            any_window(l, taps, rows, row, first, sums);
        }
        store(y, sums[0], sums[1], sums[2], sums[3], scale, zero, left);
    }
}
/* By three taps of three rows, each word of a row read once; the second word of a row's taps is (second, third). */
#define THREE_TAPS(row, taps) \
    "ldrd %[f], %[s], [%[taps], #" taps "]\n ldrd %[p], %[q], [%[" row "]], #8\n" \
    "smlad %[a0], %[p], %[f], %[a0]\n smlatb %[a1], %[p], %[f], %[a1]\n ldr %[p], [%[" row "]]\n" \
    "smlabt %[a0], %[q], %[s], %[a0]\n smlad %[a1], %[q], %[s], %[a1]\n smlad %[a2], %[q], %[f], %[a2]\n" \
    "smlatb %[a3], %[q], %[f], %[a3]\n smlabt %[a2], %[p], %[s], %[a2]\n smlad %[a3], %[p], %[s], %[a3]\n"
/* The same where neighbours lie two apart. */
#define THREE_TAPS_APART(row, taps) \
    "ldrd %[f], %[s], [%[taps], #" taps "]\n ldrd %[p], %[q], [%[" row "]], #16\n" \
    "smlad %[a0], %[p], %[f], %[a0]\n smlabt %[a0], %[q], %[s], %[a0]\n smlad %[a1], %[q], %[f], %[a1]\n" \
    "ldrd %[p], %[q], [%[" row "], #-8]\n" \
    "smlabt %[a1], %[p], %[s], %[a1]\n smlad %[a2], %[p], %[f], %[a2]\n smlabt %[a2], %[q], %[s], %[a2]\n" \
    "smlad %[a3], %[q], %[f], %[a3]\n ldr %[p], [%[" row "]]\n smlabt %[a3], %[p], %[s], %[a3]\n"
#define THREE_ROWS(of_a_row) \
    __asm__(of_a_row("row", "0") of_a_row("second", "8") of_a_row("third", "16") \
            : [a0] "+r"(a0), [a1] "+r"(a1), [a2] "+r"(a2), [a3] "+r"(a3), [row] "+r"(row), [second] "+r"(second), \
              [third] "+r"(third), [f] "=&r"(f), [s] "=&r"(s), [p] "=&r"(p), [q] "=&r"(q) \
            : [taps] "r"(taps) \
            : "memory")
INLINE void three_by_three(const struct convolution *l, const tap *taps, const cell *rows, int window, int32_t bias,
                           float scale, int8_t *y, int step) {
    const int32_t zero = zero_to_store(l->y_zero);
    const int below = row_below(l, window);
    const cell *row = rows + window, *second = rows + below, *third = rows + row_below(l, below);
    for (int left = l->out_w; left > 0; left -= 4, y += 4) {
        int32_t a0 = bias, a1 = bias, a2 = bias, a3 = bias;
#if defined(__ARM_FEATURE_DSP)
        uint32_t f, s, p, q;
        if (step == 1) {
            THREE_ROWS(THREE_TAPS);
        } else {
            THREE_ROWS(THREE_TAPS_APART);
        }
#else
        const cell *const rows[3] = {row, second, third};
        for (int i = 0; i < 3; i++) {
            const uint32_t f = taps[2 * i], s = taps[2 * i + 1];
            if (step == 1) {
                const uint32_t p = load(rows[i]), q = load(rows[i] + 2), r = load(rows[i] + 4);
                a0 = smlabt(q, s, smlad(p, f, a0)), a1 = smlad(q, s, smlatb(p, f, a1));
                a2 = smlabt(r, s, smlad(q, f, a2)), a3 = smlad(r, s, smlatb(q, f, a3));
            } else {
                uint32_t words[5];
                memcpy(words, rows[i], sizeof words);
                a0 = smlabt(words[1], s, smlad(words[0], f, a0)), a1 = smlabt(words[2], s, smlad(words[1], f, a1));
                a2 = smlabt(words[3], s, smlad(words[2], f, a2)), a3 = smlabt(words[4], s, smlad(words[3], f, a3));
            }
        }
        row += 4 * step, second += 4 * step, third += 4 * step;
#endif
        store(y, a0, a1, a2, a3, scale, zero, left);
    }
}
SHARED void row_of_windows(const struct convolution *l, const tap *taps, const cell *rows, int window, int32_t bias,
                           float scale, int8_t *y) {
    WRITES;
    if (!is_three_by_three(l)) {
        any_windows(l, taps, rows, window, bias, scale, y);
    } else if (l->stride_w == 1) {
        three_by_three(l, taps, rows, window, bias, scale, y, 1);
    } else {
        three_by_three(l, taps, rows, window, bias, scale, y, 2);
    }
}
SHARED void convolve_depthwise(const struct convolution *l, const int8_t *x, int8_t *y, packed *scratch) {
    WRITES;
    const int back = l->descending, plane = l->out_h * l->out_w, held = (l->kernel_h - 1) * l->dilation_h + 1;
    const int fresh = l->stride_h < held ? l->stride_h : held; /* rows of a window that the one before has not */
    const int words = l->kernel_h * words_of_row(l);
    cell *const rows = (cell *)(scratch + l->out_channels * words);
    const int ring = (int)l->weights_step;
    fill(l, rows, ring);
    for (int i = 0; i < l->groups; i++) {
        const int group = back ? l->groups - 1 - i : i;
        widen_taps(l, group, scratch);
        for (int j = 0, window = 0; j < l->out_h; j++) { /* `window` is where its first row lies */
            const int h = back ? l->out_h - 1 - j : j;
            int top = h * l->stride_h - l->pad_top, row = window, count = held;
            if (j) {
                window += (back ? held - fresh : fresh) * l->row_step;
                window -= window < ring ? 0 : ring;
                row = window + (back ? 0 : held - fresh) * l->row_step;
                row -= row < ring ? 0 : ring;
                top += back ? 0 : held - fresh, count = fresh;
            }
            for (const int8_t *from = x + (group * l->in_h + top) * l->in_w; count; count--, top++, from += l->in_w) {
                if ((unsigned)top >= l->in_h) {
                    fill(l, rows + row + l->pad_left, l->in_w);
                } else if (l->pad_left & 1) {
                    widen_row(l, rows + row, from, 1);
                } else {
                    widen_row(l, rows + row, from, 0);
                }
                row += l->row_step;
                row -= row < ring ? 0 : ring;
            }
            const tap *taps = scratch;
            for (int c = 0; c < l->out_channels; c++, taps += words) {
                const int channel = group * l->out_channels + c;
                row_of_windows(l, taps, rows, window, l->biases[channel], l->scales[channel],
                               y + channel * plane + h * l->out_w);
            }
        }
    }
}
