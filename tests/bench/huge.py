# SPDX-License-Identifier: Apache-2.0
"""Tensors in huge pages, so that all sides have them alike."""
import ctypes

import torch


def huge(*shape, dtype=torch.float32):
    """Whose values are not set."""
    tensor = torch.empty(shape, dtype=dtype)
    start = (tensor.data_ptr() + 4095) & ~4095
    room = max(0, tensor.data_ptr() + tensor.nbytes - start)
    ctypes.CDLL(None).madvise(ctypes.c_void_p(start), ctypes.c_size_t(room), 14)
    return tensor
