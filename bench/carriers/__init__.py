"""The contenders of `bench.transports`: servers and clients of every carrier, ours and bare."""
