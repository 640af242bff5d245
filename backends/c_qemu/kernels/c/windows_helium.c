/* Windows of four pixels by a table of where the values of some channels lie, eight values at a time. */
typedef struct {
    uint16_t *offsets;       /* from the window's first value, in values */
    uint8_t *rows, *columns; /* from its first row and column */
} places;
INLINE places places_in(const struct convolution *l, packed *scratch) {
    uint16_t *const offsets = (uint16_t *)(scratch + CHUNKS(l->depth) * 64);
    return (places){offsets, (uint8_t *)(offsets + l->row_step), (uint8_t *)(offsets + l->row_step) + l->row_step};
}
SHARED void prepare(const struct convolution *l, packed *scratch) {
    WRITES;
    const places to = places_in(l, scratch);
    int at = 0;
    for (int c = 0; c < l->strip; c++)
        for (int i = 0, row = 0; i < l->kernel_h; i++, row += l->dilation_h)
            for (int j = 0, column = 0; j < l->kernel_w; j++, at++, column += l->dilation_w) {
                to.offsets[at] = (uint16_t)((c * l->in_h + row) * l->in_w + column);
                to.rows[at] = (uint8_t)row, to.columns[at] = (uint8_t)column;
            }
    for (; at < l->row_step; at++) to.offsets[at] = 0, to.rows[at] = 0, to.columns[at] = 0; /* their weights are 0 */
}
/* Eight values, those outside the image the zero point; `x` and the others belong to the window's first value. */
INLINE void pack_eight(const struct convolution *l, const int8_t *x, int top, int left, int inside, places from,
                       int8_t *to) {
#if defined(__ARM_FEATURE_MVE)
    const uint16x8_t offsets = vldrhq_u16(from.offsets);
    if (inside) {
        vstrbq_s16(to, vldrbq_gather_offset_s16(x, offsets));
    } else {
        const uint16x8_t rows = vaddq_n_u16(vldrbq_u16(from.rows), (uint16_t)top);
        const uint16x8_t columns = vaddq_n_u16(vldrbq_u16(from.columns), (uint16_t)left);
        const mve_pred16_t high = vcmphiq_u16(vdupq_n_u16(l->in_h), rows);
        const mve_pred16_t both = vcmphiq_m_u16(vdupq_n_u16(l->in_w), columns, high);
        vstrbq_s16(to, vpselq_s16(vldrbq_gather_offset_z_s16(x, offsets, both), vdupq_n_s16(l->x_zero), both));
    }
#else
    for (int i = 0; i < 8; i++) {
        const int known = (unsigned)(top + from.rows[i]) < l->in_h && (unsigned)(left + from.columns[i]) < l->in_w;
        to[i] = inside || known ? x[from.offsets[i]] : (int8_t)l->x_zero;
    }
#endif
}
INLINE void pack_window(const struct convolution *l, const int8_t *x, int top, int left, int inside, places table,
                        packed *to) {
    const int each = l->kernel_h * l->kernel_w;
    int step = 8;
    x += top * l->in_w + left;
    for (int c = l->in_channels; c > 0; c -= l->strip, x += l->strip * l->in_h * l->in_w) {
        places from = table;
        for (int count = (c < l->strip ? c : l->strip) * each; count > 0; count -= 8) {
            pack_eight(l, x, top, left, inside, from, to);
            from.offsets += 8, from.rows += 8, from.columns += 8;
            to += step, step = 64 - step;
        }
    }
}
SHARED void pack(const struct convolution *l, const int8_t *x, int row, int first, int count, packed *scratch) {
    WRITES;
    const places table = places_in(l, scratch);
    const int high = l->in_h - (l->kernel_h - 1) * l->dilation_h, wide = l->in_w - (l->kernel_w - 1) * l->dilation_w;
    int h = first / l->out_w, w = first - h * l->out_w;
    (void)row;
    for (int slot = 0; slot < count; slot++, scratch += 16) {
        const int top = h * l->stride_h - l->pad_top, left = w * l->stride_w - l->pad_left;
        if (top >= 0 && left >= 0 && top < high && left < wide) {
            pack_window(l, x, top, left, 1, table, scratch);
        } else {
            pack_window(l, x, top, left, 0, table, scratch);
        }
        if (++w == l->out_w) w = 0, h++;
    }
}
