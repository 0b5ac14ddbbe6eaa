// Hostile bytes as a safetensors file: rejected by a WeightsError, or read as tensors that
// cover the body without gaps, survive a round trip through the writer, and can be loaded into a
// model that has them, and into no other. Each input is tried
// twice: as it is, and as header and body after a valid length.
#include "lockstep/files/safetensors.hpp"
#include "lockstep/files/safetensors_header.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/promises.hpp"
#include "lockstep/training/weights_file.hpp"

using cluster_test::fit_to_print;
using fuzz::require;

namespace {

/// Checks that tensors accepted by the writer are read back unchanged.
void write_again(const lockstep::SafetensorsFile& file) {
  std::vector<lockstep::SafetensorsEntry> entries;
  std::size_t body = 0;
  for (const auto& tensor : file.tensors()) {
    if (!tensor.dtype) return;
    entries.push_back({tensor.name, *tensor.dtype, tensor.shape, tensor.bytes});
    body += tensor.bytes.size();
  }
  const auto text = lockstep::detail::safetensors_header("again", entries, file.metadata());
  const auto again = lockstep::detail::parse_safetensors_header("again", text, body);
  require(text.size() % 8 == 0 && again.metadata == file.metadata());
  require(again.tensors.size() == entries.size());
  for (const auto& record : again.tensors) {
    const auto& tensor = file.at(record.name);
    require(record.type->dtype == tensor.dtype && record.shape == tensor.shape);
    require(record.end - record.begin == tensor.bytes.size());
  }
}

/// Loads the file's float32 tensors into parameters of the same shapes, then of another shape.
void load_part(const lockstep::SafetensorsFile& file, const std::string& path) {
  std::vector<lockstep::ParameterInfo> parameters;
  std::size_t size = 0;
  for (const auto& tensor : file.tensors()) {
    const std::size_t count = tensor.bytes.size() / sizeof(float);
    if (tensor.dtype != lockstep::DType::float32 || tensor.shape.size() > 4 || count == 0) continue;
    lockstep::Shape shape{static_cast<int>(tensor.shape.size())};
    for (std::size_t axis = 0; axis < tensor.shape.size(); ++axis)
      shape.extent[axis] = static_cast<int>(tensor.shape[axis]);
    parameters.push_back({tensor.name, shape, size, true});
    size += count;
  }
  if (parameters.empty()) return;
  std::vector<float> weights(size), state;
  const auto values = lockstep::detail::writable_bytes_of(weights, state);
  const auto report = lockstep::detail::read_weights(path, parameters, values, {.only = "*"});
  require(report.loaded.size() == parameters.size() && report.missing.empty());
  require(report.unused.size() == file.tensors().size() - parameters.size());
  for (const auto& p : parameters)
    require(std::memcmp(weights.data() + p.offset, file.at(p.name).bytes.data(),
                        p.size() * sizeof(float)) == 0);
  parameters.back().shape = lockstep::shape(1, 1, 1, static_cast<int>(size) + 1);
  weights.resize(2 * size + 1);
  const auto larger = lockstep::detail::writable_bytes_of(weights, state);
  try {
    lockstep::detail::read_weights(path, parameters, larger, {.only = "*"});
    require(false);
  } catch (const lockstep::WeightsError& error) {
    require(fit_to_print(error.what()));
  }
}

void read(const void* data, std::size_t size) {
  try {
    const std::string path = fuzz::as_file(data, size);
    const auto file = lockstep::SafetensorsFile::read(path);
    std::uint64_t header = 0;
    std::memcpy(&header, data, sizeof header);
    std::size_t body = 0;
    for (const auto& tensor : file.tensors()) {
      require(file.find(tensor.name) == &tensor);
      require(tensor.bytes.empty() ||
              std::memcmp(tensor.bytes.data(), static_cast<const char*>(data) + 8 + header + body,
                          tensor.bytes.size()) == 0);
      body += tensor.bytes.size();
      if (tensor.dtype == lockstep::DType::float32)
        require(file.values<float>(tensor.name).size() * sizeof(float) == tensor.bytes.size());
    }
    require(8 + header + body == size);
    write_again(file);
    load_part(file, path);
  } catch (const lockstep::WeightsError& error) {
    require(fit_to_print(error.what()));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  read(data, size);
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::uint64_t length = bytes.rfind('}') + 1;  // 0 if there is none
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  read((file += bytes).data(), file.size());
  return 0;
}
