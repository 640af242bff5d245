/* Recurrent layers, a step at a time: automcu_ray/deploy/recurrent_steps.py, in the same integers. */
#if defined(NET_STATES) /* one step a call: of which state, and whether it begins anew */
static uint32_t net_state;
static int net_begins;
#endif
struct recurrent {
    const int8_t *gates_weights, *fresh_weights, *of_input_weights, *of_state_weights;
    const int32_t *gates_biases, *fresh_biases, *of_input_biases, *of_state_biases;
    const float *gates_scales, *fresh_scales, *of_input_scales, *of_state_scales;
    const int16_t *sigmoid, *tanh; /* by sum + 128, in 2^-15 */
    const int8_t *start_h;         /* what the first step begins with */
    const int16_t *start_s;
    uint16_t steps, inputs, hidden;
    int16_t zero;
    uint8_t backwards, every, shift; /* every: all steps are given, not the last alone */
#if defined(NET_STATES)
    int8_t *kept; /* from step to step, for each of the states */
#endif
};
/* What one step leaves to the next: `s` has 16 bits, `h` 8; the step's data lies behind, then room for its sums. */
struct states {
    int16_t *s;
    int8_t *h, *x, *sums;
};
typedef void step(const struct recurrent *l, const struct states *at);

INLINE int32_t shifted(int32_t value, int bits) {
    return bits ? (value + (1 << (bits - 1))) >> bits : value;
}
#define SUMS(name, inputs, outputs, zero, from, to) \
    products(l->name##_weights, l->name##_biases, l->name##_scales, inputs, outputs, zero, from, to, 1)

INLINE void gru(const struct recurrent *l, const struct states *at, int reset_after) {
    const int hidden = l->hidden, inputs = l->inputs;
    int8_t *const again = at->sums, *const z = reset_after ? again : again + hidden; /* the state once reset, first */
    int8_t *const r = z + hidden, *const one = r + hidden, *const other = one + hidden;
    SUMS(gates, hidden + inputs, 2 * hidden, 0, at->h, z);
    if (reset_after) {
        SUMS(of_input, inputs, hidden, 0, at->x, one);
        SUMS(of_state, hidden, hidden, 0, at->h, other);
    } else {
        for (int i = 0; i < hidden; i++) again[i] = saturate(shifted(l->sigmoid[r[i] + 128] * at->s[i], 23));
        memmove(at->h, again, (size_t)hidden);
        SUMS(fresh, hidden + inputs, hidden, 0, at->h, one);
    }
    for (int i = 0; i < hidden; i++) {
        int32_t sum = one[i];
        if (reset_after) sum = saturate(shifted(sum * (1 << 15) + l->sigmoid[r[i] + 128] * other[i], l->shift));
        const int32_t kept = l->sigmoid[z[i] + 128];
        at->s[i] = (int16_t)shifted(kept * at->s[i] + ((1 << 15) - kept) * l->tanh[sum + 128], 15);
        at->h[i] = saturate(shifted(at->s[i], 8));
    }
}
INLINE void gru_after(const struct recurrent *l, const struct states *at) {
    gru(l, at, 1);
}
INLINE void gru_before(const struct recurrent *l, const struct states *at) {
    gru(l, at, 0);
}
/* `shift`: bits of fraction of the cell. */
INLINE void lstm(const struct recurrent *l, const struct states *at) {
    const int hidden = l->hidden;
    const int8_t *const i = at->sums, *const o = i + hidden, *const f = o + hidden, *const fresh = f + hidden;
    SUMS(gates, hidden + l->inputs, 4 * hidden, 0, at->h, at->sums);
    for (int k = 0; k < hidden; k++) {
        const int32_t new = shifted(l->sigmoid[i[k] + 128] * l->tanh[fresh[k] + 128], 15 - l->shift);
        const int32_t cell = shifted(l->sigmoid[f[k] + 128] * at->s[k] + new, 15);
        at->s[k] = (int16_t)(cell < -32767 ? -32767 : cell > 32767 ? 32767 : cell);
        const int32_t squashed = l->tanh[saturate(shifted(at->s[k], l->shift - 5)) + 128];
        at->h[k] = saturate(shifted(l->sigmoid[o[k] + 128] * squashed, 23));
    }
}
INLINE void plain(const struct recurrent *l, const struct states *at) {
    SUMS(fresh, l->hidden + l->inputs, l->hidden, l->zero, at->h, at->sums);
    for (int i = 0; i < l->hidden; i++)
        at->h[i] = l->tanh ? saturate(shifted(l->tanh[at->sums[i] + 128], 8)) : at->sums[i];
}
INLINE void all_steps(const struct recurrent *l, const int8_t *x, int8_t *y, packed *scratch, step *one) {
    const uint32_t hidden = l->hidden, inputs = l->inputs, wide = l->start_s ? hidden : 0;
    int16_t *const s = (int16_t *)(void *)scratch;
    int8_t *const h = (int8_t *)(s + wide);
    const struct states at = {s, h, h + hidden, h + hidden + inputs};
    if (wide) memcpy(s, l->start_s, 2 * wide);
    memcpy(h, l->start_h, hidden);
#if defined(NET_STATES)
    int8_t *const kept = l->kept + net_state * (2 * wide + hidden);
    if (!net_begins) memcpy(s, kept, 2 * wide + hidden);
#endif
    for (uint32_t t = 0; t < l->steps; t++) {
        const uint32_t place = l->backwards ? l->steps - 1u - t : t;
        memcpy(at.x, x + place * inputs, inputs);
        one(l, &at);
        memcpy(y + (l->every ? place * hidden : 0), h, hidden);
    }
#if defined(NET_STATES)
    memcpy(kept, s, 2 * wide + hidden);
#endif
}
#define LAYER(name, one) \
    SHARED void name(const struct recurrent *l, const int8_t *x, int8_t *y, packed *scratch) { \
        WRITES; \
        all_steps(l, x, y, scratch, one); \
    }
LAYER(recur_gru_after, gru_after)
LAYER(recur_gru_before, gru_before)
LAYER(recur_lstm, lstm)
LAYER(recur_plain, plain)
