/* What moves values, or looks each up in a table. */
struct lookup {
    const int8_t *table; /* by value + 128 */
    uint32_t size;
};
SHARED void lookup(const struct lookup *l, const int8_t *x, int8_t *y) {
    WRITES;
    for (uint32_t i = 0; i < l->size; i++) y[i] = l->table[x[i] + 128];
}

/* One part of a concatenation: `count` pieces of `size` values, written `step` apart; as they are without a table. */
struct join {
    const int8_t *table;
    uint32_t offset, count, size, step;
};
SHARED void join(const struct join *l, const int8_t *x, int8_t *y) {
    WRITES;
    y += l->offset;
    for (uint32_t i = 0; i < l->count; i++, x += l->size, y += l->step) {
        if (l->table) {
            for (uint32_t j = 0; j < l->size; j++) y[j] = l->table[x[j] + 128];
        } else {
            memmove(y, x, l->size);
        }
    }
}

/* Values in another order: `size` neighbours at a time stay together. */
struct transpose {
    uint32_t offset, size, counts[5], steps[5];
};
SHARED void transpose(const struct transpose *l, const int8_t *x, int8_t *y) {
    WRITES;
    x += l->offset;
    for (uint32_t a = 0; a < l->counts[0]; a++)
        for (uint32_t b = 0; b < l->counts[1]; b++)
            for (uint32_t c = 0; c < l->counts[2]; c++)
                for (uint32_t d = 0; d < l->counts[3]; d++) {
                    const int8_t *from = x + a * l->steps[0] + b * l->steps[1] + c * l->steps[2] + d * l->steps[3];
                    for (uint32_t e = 0; e < l->counts[4]; e++, from += l->steps[4], y += l->size)
                        memmove(y, from, l->size);
                }
}

/* Nearest neighbours: which row and column each output's value comes from. */
struct resize {
    const uint16_t *rows, *columns;
    uint16_t channels, in_h, in_w, out_h, out_w;
};
SHARED void resize(const struct resize *l, const int8_t *x, int8_t *y) {
    WRITES;
    for (int c = 0; c < l->channels; c++, x += l->in_h * l->in_w)
        for (int h = 0; h < l->out_h; h++)
            for (int w = 0; w < l->out_w; w++) *y++ = x[l->rows[h] * l->in_w + l->columns[w]];
}
