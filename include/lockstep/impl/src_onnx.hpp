/// \file
/// All definitions of the component onnx. Include it in exactly one source file of a program whose
/// units all define LOCKSTEP_SEPARATE_COMPILATION; see src.hpp.
#pragma once

#ifndef LOCKSTEP_SEPARATE_COMPILATION
#error \
    "lockstep/impl/src_onnx.hpp: define LOCKSTEP_SEPARATE_COMPILATION in all units of the program"
#endif

#include "lockstep/onnx/export_onnx.ipp"
#include "lockstep/onnx/graph_builder.ipp"
#include "lockstep/onnx/layer_forms.ipp"
