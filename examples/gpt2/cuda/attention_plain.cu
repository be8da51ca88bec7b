// SPDX-License-Identifier: Apache-2.0
/*
 * Attention in plain fp32 arithmetic: of fp32 operands, and of 16-bit ones whose heads
 * have a size that tensor cores do not take, which are rare enough for one width.
 */
#include "examples/gpt2/cuda/attention.cuh"

cudaError_t plain_forward(cudaStream_t stream, OperandF32, const Attention<float> &a)
{
    if (a.size > 128)
        return forward_launch<PlainTiles<OperandF32, 256>>(stream, a);
    return a.size > 64 ? forward_launch<PlainTiles<OperandF32, 128>>(stream, a)
                       : forward_launch<PlainTiles<OperandF32, 64>>(stream, a);
}

cudaError_t plain_forward(cudaStream_t stream, OperandBf16, const Attention<uint16_t> &a)
{
    return forward_launch<PlainTiles<OperandBf16, 256>>(stream, a);
}

cudaError_t plain_forward(cudaStream_t stream, OperandF16, const Attention<uint16_t> &a)
{
    return forward_launch<PlainTiles<OperandF16, 256>>(stream, a);
}

cudaError_t plain_backward(cudaStream_t stream, OperandF32, const Attention<float> &a)
{
    if (a.size > 128)
        return backward_launch<PlainTiles<OperandF32, 256>>(stream, a);
    return a.size > 64 ? backward_launch<PlainTiles<OperandF32, 128>>(stream, a)
                       : backward_launch<PlainTiles<OperandF32, 64>>(stream, a);
}

cudaError_t plain_backward(cudaStream_t stream, OperandBf16, const Attention<uint16_t> &a)
{
    return backward_launch<PlainTiles<OperandBf16, 256>>(stream, a);
}

cudaError_t plain_backward(cudaStream_t stream, OperandF16, const Attention<uint16_t> &a)
{
    return backward_launch<PlainTiles<OperandF16, 256>>(stream, a);
}
