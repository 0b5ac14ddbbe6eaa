/// \file
/// Export of a model to ONNX. Invariants: the graph computes what `predict` does; all layers of the
/// library have a form; the file is complete or absent.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/core/config.hpp"
#include "lockstep/onnx/layer_forms.hpp"
#include "lockstep/training/export/architecture.hpp"

namespace lockstep {

namespace detail {

/// The model as the bytes of an ONNX file. \throws UsageError, which names the layer, for a custom
/// layer or activation.
LOCKSTEP_COLD_DECL std::string onnx_model(const Architecture& architecture, ParameterValues values);

/// Writes onnx_model atomically. \throws FileError.
LOCKSTEP_COLD_DECL void write_onnx(const std::string& path, const Architecture& architecture,
                                   ParameterValues values);

}  // namespace detail

/// Writes the inference graph of `model` as an ONNX file (opset 18) with the weights. Input "input"
/// and output "output" are float32 with the axes of lockstep, channels last; the first axis, the
/// batch, is free ("N"). A Graph has its own inputs and outputs, by their names. Dropout, noise and
/// augmentation have their inference forms. Only the chief writes. \throws UsageError for a layer
/// that is not the library's, or above 2 GiB; FileError.
/// \code
///   ls::export_onnx(model, "cnn.onnx");
///   // Python: onnxruntime.InferenceSession("cnn.onnx").run(["output"], {"input": images})
/// \endcode
template <class Model>
[[gnu::cold]] void export_onnx(const Model& model, const std::string& path) {
  if (!model.is_chief()) return;
  detail::write_onnx(path, Model::architecture(), [&](const std::string& name) {
    const auto values = model.weights(name);
    return std::vector<float>(values.begin(), values.end());
  });
}

}  // namespace lockstep

#ifdef LOCKSTEP_HEADER_ONLY
#include "lockstep/onnx/export_onnx.ipp"
#endif
