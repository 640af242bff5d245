/* Samples become the network's input in stream.c, in the integers that training saw. */
void net_init(void) {
    stream_reset();
}

int net_classify(const int16_t *samples, uint32_t count) {
    net_value scores[NET_CLASSES];
    stream_feed(samples, count);
    return stream_result(scores) ? largest(scores) : -1;
}
