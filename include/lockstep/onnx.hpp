/// \file
/// Export to ONNX: `ls::export_onnx`. Include lockstep.hpp as well. Requires protozero
/// (lockstep::onnx).
#pragma once

#include "lockstep/core/compiler.hpp"

#include "lockstep/onnx/export_onnx.hpp"
