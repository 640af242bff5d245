/* Integer functions: exact, and so defined by these integers (automcu_ray/deploy/integer_functions.py). */
struct softmax {
    const int32_t *exponentials; /* by the distance from the largest value */
    uint32_t outer, inner, whole;
    uint16_t size;
    int16_t y_zero;
};
SHARED void softmax(const struct softmax *l, const int8_t *x, int8_t *y) {
    WRITES;
    const uint32_t step = l->inner, end = l->size * step;
    for (uint32_t i = 0; i < l->outer; i++, x += end - step, y += end - step)
        for (uint32_t j = 0; j < step; j++, x++, y++) {
            int32_t largest = -128;
            for (uint32_t k = 0; k < end; k += step) largest = x[k] > largest ? x[k] : largest;
            uint32_t sum = 0;
            for (uint32_t k = 0; k < end; k += step) sum += (uint32_t)l->exponentials[largest - x[k]];
            const uint32_t each = (uint32_t)(((uint64_t)l->whole << 20) / sum);
            for (uint32_t k = 0; k < end; k += step) {
                const uint64_t share = (uint64_t)(uint32_t)l->exponentials[largest - x[k]] * each + (1u << 31);
                y[k] = saturate((int32_t)(share >> 32) + l->y_zero);
            }
        }
}

/* The steps say how far apart an operand's neighbours are: 0 where it is repeated. */
struct values {
    uint32_t counts[3], steps_a[3], steps_b[3];
    const int8_t *table_a, *table_b; /* by value + 128; none where the scale stays */
    const int32_t *factors;
    int16_t zero_a, y_zero;
};
#define FOR_VALUES(...) \
    for (uint32_t i = 0; i < l->counts[0]; i++) \
        for (uint32_t j = 0; j < l->counts[1]; j++) { \
            const int8_t *a = first + i * l->steps_a[0] + j * l->steps_a[1]; \
            const int8_t *b = second + i * l->steps_b[0] + j * l->steps_b[1]; \
            for (uint32_t k = 0; k < l->counts[2]; k++, a += l->steps_a[2], b += l->steps_b[2]) *y++ = __VA_ARGS__; \
        }
SHARED void ratio(const struct values *l, const int8_t *first, const int8_t *second, int8_t *y) {
    WRITES;
    FOR_VALUES(saturate((((*a - l->zero_a) * l->factors[*b + 128] + (1 << 12)) >> 13) + l->y_zero))
}
INLINE int32_t looked_up(const int8_t *table, int32_t value) {
    return table ? table[value + 128] : value;
}
SHARED void largest_of_two(const struct values *l, const int8_t *first, const int8_t *second, int8_t *y) {
    WRITES;
    const int8_t *const of_a = l->table_a, *const of_b = l->table_b;
    FOR_VALUES((int8_t)(looked_up(of_a, *a) > looked_up(of_b, *b) ? looked_up(of_a, *a) : looked_up(of_b, *b)))
}
SHARED void smallest_of_two(const struct values *l, const int8_t *first, const int8_t *second, int8_t *y) {
    WRITES;
    const int8_t *const of_a = l->table_a, *const of_b = l->table_b;
    FOR_VALUES((int8_t)(looked_up(of_a, *a) < looked_up(of_b, *b) ? looked_up(of_a, *a) : looked_up(of_b, *b)))
}
