
int net_estimate(TAKEN, float *values) {
    static const float scales[NET_OUTPUTS] = NET_VALUE_SCALES, offsets[NET_OUTPUTS] = NET_VALUE_OFFSETS;
    net_value outputs[NET_OUTPUTS];
    int at;
    if (!answer(GIVEN, outputs)) return -1;
    for (at = 0; at < NET_OUTPUTS; at++) values[at] = NET_DECODE(outputs[at]) * scales[at] + offsets[at];
    return 0;
}
