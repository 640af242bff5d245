/* Four neighbours of a row, some of them beyond its ends; rows have at least four values. */
typedef struct {
    int from; /* where four values of a row are loaded, and what is made of them: the zero point where that is outside */
    uint32_t turn, keep, fill;
} edge;
INLINE edge edge_at(int at, int width, uint32_t zeros) {
    const int beyond = at + 4 - width;
    edge made = {at, 0, ~0u, 0};
    if (at <= -4 || at >= width) {
        made = (edge){0, 0, 0, 0};
    } else if (at < 0) {
        made = (edge){0, (uint32_t)(32 + 8 * at), ~0u << (-8 * at), 0};
    } else if (beyond > 0) {
        made = (edge){width - 4, (uint32_t)(8 * beyond), ~0u >> (8 * beyond), 0};
    }
    made.fill = zeros & ~made.keep;
    return made;
}
INLINE uint32_t at_edge(const int8_t *row, const edge *e) {
    const uint32_t value = load(row + e->from);
    return ((value >> e->turn | value << (-e->turn & 31)) & e->keep) | e->fill;
}
