"""MLPerf Tiny: a second firmware for a bundle's network, in the protocol of the benchmark's own runner."""
