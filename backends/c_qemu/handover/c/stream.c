/* Samples become the network's input in stream.c, in the integers that training saw. */
void net_init(void) {
    stream_reset();
}

/* 1 and the network's outputs; 0 until a whole window has been fed. */
static int answer(const int16_t *samples, uint32_t count, net_value *outputs) {
    stream_feed(samples, count);
    return stream_result(outputs);
}
