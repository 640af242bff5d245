
/* The mean squared difference between what went in and what came out. */
int net_score(TAKEN, float *score) {
    static net_value outputs[NET_OUTPUTS];
    float sum = 0.0f;
    int at;
    if (!answer(GIVEN, outputs)) return -1;
    for (at = 0; at < NET_OUTPUTS; at++) {
        const float apart = NET_DECODE(outputs[at]) - NET_DECODE_INPUT(WENT_IN[at]);
        sum += apart * apart;
    }
    *score = sum / (float)NET_OUTPUTS;
    return *score >= NET_THRESHOLD;
}
