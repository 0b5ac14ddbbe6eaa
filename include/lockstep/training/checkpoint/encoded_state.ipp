#pragma once

#include "lockstep/training/checkpoint/encoded_state.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "lockstep/core/add_item.hpp"
#include "lockstep/core/format_numbers.hpp"
#include "lockstep/core/format_text.hpp"
#include "lockstep/core/numbers/finite.hpp"
#include "lockstep/core/process/file_descriptor.hpp"
#include "lockstep/core/quote.hpp"
#include "lockstep/core/version.hpp"
#include "lockstep/files/json_document.hpp"
#include "lockstep/files/safetensors.hpp"
#include "lockstep/files/safetensors_header.hpp"
#include "lockstep/training/checks/describe_layers.hpp"
#include "lockstep/training/weights_file.hpp"

namespace lockstep::detail {

inline constexpr std::uint64_t checkpoint_format = 1;

/// A double that reads back with the same bits, also if it is not finite.
[[gnu::cold]] inline std::string exact_number(double value) {
  if (std::isnan(value)) return "\"nan\"";
  if (!is_finite(value)) return value > 0 ? "\"inf\"" : "\"-inf\"";
  if (value == 0 && std::signbit(value)) return "-0.0";  // as an integer it would be 0
  return shortest_number(value);
}
[[gnu::cold]] inline std::string exact_numbers(const std::vector<double>& values) {
  std::string text;
  for (const double value : values) text += (text.empty() ? "" : ", ") + exact_number(value);
  return "[" + text + "]";
}
/// The values of a list of numbers. \throws JsonError.
[[gnu::cold]] inline std::vector<double> numbers_of(const JsonValue& object, std::string_view key) {
  std::vector<double> values;
  for (const JsonValue& value : json_list(object, key)) values.push_back(json_double(value));
  return values;
}

/// Longer lists are tensors of a file: the manifest is read by people.
inline constexpr std::size_t most_numbers = 16;
[[gnu::cold]] inline std::span<const std::byte> bytes_of_numbers(
    const std::vector<double>& values) {
  return std::as_bytes(std::span(values));
}

[[gnu::cold]] inline std::string describe_requests(const RunRequests& r) {
  return format_text("{{\"stop_now\": {}, \"end_training\": {}, \"signal\": {}}}", r.stop_now,
                     r.end_training, r.signal);
}
[[gnu::cold]] inline std::string describe_position(const RunPosition& p) {
  std::string execution;
  if (p.execution)
    execution = format_text(
        ", \"execution\": {{\"before\": {}, \"steps\": {}, \"requests\": {}, \"agreed\": {}, "
        "\"last_checkpoint\": {}, \"ahead\": {}, \"is_complete\": {}}}",
        p.execution->before, p.execution->steps, describe_requests(p.execution->requests),
        describe_requests(p.execution->agreed),
        p.execution->last_checkpoint ? format_text("{}", *p.execution->last_checkpoint) : "null",
        exact_numbers({p.execution->ahead.begin(), p.execution->ahead.end()}),
        p.execution->is_complete);
  return format_text(
      "{{\"epoch\": {}, \"steps\": {}, \"pass\": {}, \"examples\": {}, \"first_update\": {}, "
      "\"has_ended\": {}, \"loss\": {}, \"count\": {}, \"values\": {}, "
      "\"step_values\": {}{}}}",
      p.epoch, p.steps, p.pass, p.examples, p.first_update, p.has_ended, exact_number(p.logs.loss),
      exact_number(p.logs.count), exact_numbers(p.logs.values), exact_numbers(p.logs.steps),
      execution);
}
/// A list of layers, and one of [parameter, rate, decay]; nothing for a model without settings, whose
/// manifest is that of earlier versions.
[[gnu::cold]] inline std::string describe_settings(const NamedSettings& settings) {
  if (settings.is_default()) return {};
  std::string held, multipliers;
  for (const std::string& name : settings.held) add_item(held, ", ", json_string(name));
  for (std::size_t i = 0; i < settings.parameters.size(); ++i)
    add_item(multipliers, ", ",
             format_text("[{}, {}, {}]", json_string(settings.parameters[i]),
                         exact_number(settings.multipliers[2 * i]),
                         exact_number(settings.multipliers[2 * i + 1])));
  return format_text(",\n  \"untrained_layers\": [{}],\n  \"multipliers\": [{}]", held,
                     multipliers);
}
[[gnu::cold]] inline NamedSettings decode_settings(const JsonValue& root) {
  NamedSettings settings;
  if (!json_find(root, "untrained_layers")) return settings;
  for (const JsonValue& name : json_list(root, "untrained_layers")) {
    if (!name.is_text()) throw JsonError("\"untrained_layers\" is not a list of names");
    settings.held.emplace_back(name.text());
  }
  for (const JsonValue& its : json_list(root, "multipliers")) {
    const auto values = its.is_list() ? its.values() : std::vector<JsonValue>{};
    if (values.size() != 3 || !values[0].is_text())
      throw JsonError("\"multipliers\" is not a list of a name and two numbers each");
    const ParameterMultipliers two{json_double(values[1]), json_double(values[2])};
    if (!is_finite(two.rate) || !is_finite(two.decay) || two.rate < 0 || two.decay < 0)
      throw JsonError("a multiplier of {} is negative or not finite", shown_name(values[0].text()));
    settings.parameters.emplace_back(values[0].text());
    settings.multipliers.push_back(two.rate);
    settings.multipliers.push_back(two.decay);
  }
  return settings;
}
[[gnu::cold]] inline std::string describe_best(const BestCheckpoint& best) {
  return format_text("{{\"name\": {}, \"value\": {}, \"step\": {}}}", json_string(best.name),
                     exact_number(best.value), best.step);
}

/// Begins the names of the tensors of what a replica has kept.
[[gnu::cold]] inline std::string kept_name(std::size_t replica) {
  return format_text("replica_{}", replica);
}
/// The same of the factors.
[[gnu::cold]] inline std::string factors_name(std::size_t layout) {
  return format_text("factors_{}", layout);
}

std::span<const std::byte> EncodedState::Fetch::operator()(std::span<const std::byte> place) {
  const std::size_t at = reinterpret_cast<std::uintptr_t>(place.data()) -
                         reinterpret_cast<std::uintptr_t>(places.data());
  if (at >= places.size()) return place;
  const std::size_t buffer = at / each;
  bytes.resize(place.size());
  from->read(buffer == 0 ? 0 : buffer + 1, at % each, bytes);
  return bytes;
}

EncodedState::EncodedState(const JobState& state, const std::vector<ParameterInfo>& parameters) {
  if (state.distant) {
    for (const ParameterInfo& p : parameters)
      if (p.trainable) fetch_.each += p.size() * size_of(state.type);
    const std::size_t all = fetch_.each * (1 + state.slot_values.size());
    const std::byte* const first = places_.allocate(all);
    if (first == nullptr) throw Error("checkpoint: cannot reserve {} bytes of addresses", all);
    fetch_.from = state.distant.get();
    fetch_.places = {first, all};
  }
  using Fetched = decltype(CheckpointFile::fetch);
  const Fetched fetch = state.distant ? Fetched(fetch_) : Fetched();
  const auto buffer = [&](std::size_t i, const std::vector<std::byte>& bytes) {
    return state.distant ? fetch_.places.subspan(i * fetch_.each, fetch_.each)
                         : std::span<const std::byte>(bytes);
  };
  const auto add_file = [&](std::string_view name, std::vector<SafetensorsEntry> tensors) {
    heads_.push_back(safetensors_head(std::string(name), tensors, {{"format", "lockstep"}}));
    CheckpointFile file{std::string(name), {}, fetch};
    file.bytes.push_back({});  // the head, whose address is known when all heads are there
    for (const SafetensorsEntry& tensor : tensors)
      if (!tensor.bytes.empty()) file.bytes.push_back(tensor.bytes);
    files_.push_back(std::move(file));
  };
  std::vector<SafetensorsEntry> tensors;
  const ValueBytes<const std::byte> values{state.type, buffer(0, state.weights), state.state};
  for (const ParameterInfo& p : parameters)
    tensors.push_back({p.name, state.type, extents_of(p.shape), values.of(p)});
  add_file(weights_file_name, std::move(tensors));
  tensors.clear();
  for (std::size_t i = 0; i < state.slot_values.size(); ++i) {
    const std::string& slot = state.slot_values[i].first;
    const ValueBytes<const std::byte> of_slot{
        state.type, buffer(1 + i, state.slot_values[i].second), {}};
    for (const ParameterInfo& p : parameters)
      if (p.trainable)
        tensors.push_back({slot + "/" + p.name, state.type, extents_of(p.shape), of_slot.of(p)});
  }
  add_file(optimizer_file_name, std::move(tensors));
  tensors.clear();
  if (state.kept) {
    const auto add_buffer = [&](const std::string& name, const std::vector<std::byte>& bytes) {
      const ValueBytes<const std::byte> values_of{state.type, bytes, {}};
      for (const ParameterInfo& p : parameters)
        if (p.trainable && !bytes.empty())
          tensors.push_back(
              {name + "/" + p.name, state.type, extents_of(p.shape), values_of.of(p)});
    };
    for (std::size_t r = 0; r < state.kept->of_replica.size(); ++r)
      add_buffer(kept_name(r), state.kept->of_replica[r]);
    add_buffer(factors_name(state.kept->factors_layout), state.kept->factors);
    add_file(kept_file_name, std::move(tensors));
    tensors.clear();
  }
  // No callback has an empty name, so these names are free.
  tensors.push_back(
      {"/totals", DType::float64, {state.totals.size()}, bytes_of_numbers(state.totals)});
  if (state.position) {
    const std::vector<double>& sums = state.position->logs.sums;
    tensors.push_back({"/sums", DType::float64, {sums.size()}, bytes_of_numbers(sums)});
  }
  std::string callbacks;
  for (const auto& [name, saved] : state.callbacks) {
    std::string numbers;
    for (const auto& [key, list] : saved.all_numbers())
      if (list.size() > most_numbers)
        tensors.push_back(
            {name + "/" + key, DType::float64, {list.size()}, bytes_of_numbers(list)});
      else
        numbers += format_text("{}{}: {}", numbers.empty() ? "" : ", ", json_string(key),
                               exact_numbers(list));
    for (const auto& [key, bytes] : saved.all_bytes())
      tensors.push_back({name + "/" + key, DType::uint8, {bytes->size()}, *bytes});
    callbacks += format_text("{}\n    {{\"name\": {}, \"numbers\": {{{}}}}}",
                             callbacks.empty() ? "" : ",", json_string(name), numbers);
  }
  add_file(callbacks_file_name, std::move(tensors));
  for (std::size_t i = 0; i < files_.size(); ++i)
    files_[i].bytes[0] = std::as_bytes(std::span(heads_[i]));

  std::string fields;
  for (const auto& [name, value] : state.signature)
    fields += format_text("{}\n    [{}, {}]", fields.empty() ? "" : ",", json_string(name),
                          json_string(value));
  description_ = format_text(
      "{{\n  \"format\": {},\n  \"library\": \"{}\",\n  \"steps\": {},\n  \"updates\": {},\n"
      "  \"seed\": {},\n  \"rate\": {},\n  \"loss_scale\": {{\"scale\": {}, \"finite_steps\": {}, "
      "\"skipped\": {}}},\n  \"has_averages_in_weights\": {},\n  \"passes\": {},\n"
      "  \"examples\": {},\n"
      "  \"replicas\": {},\n  \"workers\": {},\n  \"position\": {},\n  \"best\": {},\n"
      "  \"callbacks\": [{}],\n  \"signature\": [{}]{}",
      checkpoint_format, LOCKSTEP_VERSION, state.steps, state.steps - state.loss_scale.skipped,
      state.seed, state.rate ? exact_number(*state.rate) : "null",
      exact_number(state.loss_scale.scale), state.loss_scale.finite_steps, state.loss_scale.skipped,
      state.has_averages_in_weights, state.passes, state.examples, state.replicas, state.workers,
      state.position ? describe_position(*state.position) : "null",
      state.best ? describe_best(*state.best) : "null", callbacks, fields,
      describe_settings(state.settings));
}

inline bool has_tensor(const SafetensorsFile& file, std::string_view name) {
  return std::any_of(file.tensors().begin(), file.tensors().end(),
                     [&](const SafetensorsTensor& tensor) { return tensor.name == name; });
}

/// Fills the parts of a slot that the checkpoint does not have, of parameters that were frozen when it
/// was written, with the values of a new model's: `start`, or for averages the weights.
[[gnu::cold]] inline void start_slot(const SafetensorsFile& file, const std::string& slot,
                                     const std::vector<ParameterInfo>& parameters, double start,
                                     const ValueBytes<const std::byte>& weights,
                                     const ValueBytes<std::byte>& to) {
  const auto fill = [&]<class T>(T value, std::span<std::byte> bytes) {
    for (std::size_t at = 0; at < bytes.size(); at += sizeof value)
      std::memcpy(bytes.data() + at, &value, sizeof value);
  };
  for (const ParameterInfo& p : parameters) {
    if (!p.trainable || has_tensor(file, slot + "/" + p.name)) continue;
    const std::span<std::byte> bytes = to.of(p);
    if (slot == "moving_average") {
      const std::span<const std::byte> values = weights.of(p);
      std::copy(values.begin(), values.end(), bytes.begin());
    } else if (to.type == DType::float32) {
      fill(static_cast<float>(start), bytes);
    } else {
      fill(start, bytes);
    }
  }
}

/// Copies the tensors of one flat buffer. `prefix` begins their names in the file.
[[gnu::cold]] inline void copy_tensors(const SafetensorsFile& file, const std::string& prefix,
                                       const std::vector<ParameterInfo>& parameters,
                                       const ValueBytes<std::byte>& to, bool trainable_only,
                                       bool may_lack = false) {
  for (const ParameterInfo& p : parameters) {
    if (trainable_only && !p.trainable) continue;
    if (may_lack && !has_tensor(file, prefix + p.name)) continue;
    const std::span<const std::byte> found = file.bytes(prefix + p.name, to.type);
    if (file.at(prefix + p.name).shape != extents_of(p.shape))
      throw CheckpointError(file.path(), "tensor '{}{}' does not have the model's shape {}", prefix,
                            p.name, to_string(p.shape));
    std::copy(found.begin(), found.end(), to.of(p).begin());
  }
}

[[gnu::cold]] inline RunRequests decode_requests(const JsonValue& value) {
  RunRequests requests;
  requests.stop_now = json_boolean(value, "stop_now");
  requests.end_training = json_boolean(value, "end_training");
  const std::uint64_t signal = json_natural(value, "signal");
  if (signal > 64) throw JsonError("the member \"signal\" is {}, above 64", signal);
  requests.signal = static_cast<int>(signal);
  return requests;
}

[[gnu::cold]] inline RunPosition decode_position(const JsonValue& value) {
  RunPosition p;
  const std::uint64_t epoch = json_natural(value, "epoch");
  if (epoch > 1'000'000'000) throw JsonError("the member \"epoch\" is {}, above 10^9", epoch);
  p.epoch = static_cast<int>(epoch);
  p.steps = json_natural(value, "steps");
  p.pass = json_natural(value, "pass");
  p.examples = json_natural(value, "examples");
  p.first_update = json_natural(value, "first_update");
  p.has_ended = json_boolean(value, "has_ended");
  p.logs = {{},
            json_double(json_member(value, "loss")),
            json_double(json_member(value, "count")),
            numbers_of(value, "values"),
            numbers_of(value, "step_values")};
  if (const auto within = json_find(value, "execution")) {
    ExecutionPosition& at = p.execution.emplace();
    at.before = json_natural(*within, "before");
    at.steps = json_natural(*within, "steps");
    at.requests = decode_requests(json_member(*within, "requests"));
    at.agreed = decode_requests(json_member(*within, "agreed"));
    if (json_member(*within, "last_checkpoint").kind() != JsonKind::null)
      at.last_checkpoint = json_natural(*within, "last_checkpoint");
    for (const double step : numbers_of(*within, "ahead"))
      at.ahead.push_back(static_cast<std::uint64_t>(step));
    at.is_complete = json_boolean(*within, "is_complete");
  }
  return p;
}

/// Before there was a member "best", it was a callback with this name, whose numbers were the
/// value, by name, and its step.
[[gnu::cold]] inline void convert_best(JobState& state) {
  const auto found = std::find_if(state.callbacks.begin(), state.callbacks.end(),
                                  [](const auto& c) { return c.first == "best checkpoint"; });
  if (found == state.callbacks.end()) return;
  for (const auto& [name, values] : found->second.all_numbers())
    if (name != "step" && values.size() == 1 && found->second.contains("step"))
      state.best = BestCheckpoint{name, values[0], found->second.count("step")};
  state.callbacks.erase(found);
}

/// The buffers of an entry's files.
class FileBuffers final : public DistantBuffers {
 public:
  explicit FileBuffers(const JsonValue& manifest) {
    for (const JsonValue& file : json_list(manifest, "files"))
      sizes_[std::string(json_text(file, "name"))] = json_natural(file, "size");
  }
  /// Finds the tensors of buffers in a file of which the entry has the head. `prefix` begins their
  /// names. \throws WeightsError unless each has the shape and type of its parameter.
  [[gnu::cold]] void add(const CheckpointEntry& entry, std::string_view file,
                         const std::string& prefix, const std::vector<ParameterInfo>& parameters,
                         DType type, std::size_t of_trainable,
                         std::optional<std::size_t> of_others) {
    const std::string name(file), path = entry.path + "/" + name;
    std::size_t body = 0;
    const SafetensorsHeader header = read_safetensors_head(
        path, entry.files.at(name), sizes_.at(name), SafetensorsFile::import_limit, body);
    for (const ParameterInfo& p : parameters) {
      if (!p.trainable && !of_others) continue;
      const auto found =
          std::find_if(header.tensors.begin(), header.tensors.end(),
                       [&](const SafetensorsRecord& t) { return t.name == prefix + p.name; });
      if (found == header.tensors.end() || found->type->dtype != type ||
          found->shape != extents_of(p.shape))
        throw CheckpointError(path,
                              "tensor '{}{}' is missing, or has not the model's shape {} and type",
                              prefix, p.name, to_string(p.shape));
      tensors_.push_back({p.trainable ? of_trainable : *of_others, p.offset * size_of(type),
                          p.size() * size_of(type), path, body + found->begin});
    }
  }
  [[gnu::cold]] void read(std::size_t buffer, std::size_t first, std::span<std::byte> to) override {
    const auto of = std::find_if(tensors_.begin(), tensors_.end(), [&](const Tensor& t) {
      return t.buffer == buffer && first >= t.first && first - t.first + to.size() <= t.count;
    });
    if (of == tensors_.end()) throw Error("checkpoint: no file has the bytes of the buffer");
    if (of->path != path_) {
      file_ = FileDescriptor(::open(of->path.c_str(), O_RDONLY | O_CLOEXEC));
      path_ = of->path;
    }
    for (std::size_t done = 0; done < to.size();) {
      const ssize_t n = ::pread(file_.number(), to.data() + done, to.size() - done,
                                static_cast<::off_t>(of->begin + (first - of->first) + done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0)
        throw FileError(path_, "it was changed while it was being read; start the job again");
      done += static_cast<std::size_t>(n);
    }
  }

 private:
  struct Tensor {
    std::size_t buffer, first, count;  // bytes
    std::string path;
    std::uint64_t begin;  // in the file
  };
  std::map<std::string, std::uint64_t> sizes_;
  std::vector<Tensor> tensors_;
  std::string path_;  // of the open file
  FileDescriptor file_{-1};
};

/// The fields of the manifest. \throws JsonError, CheckpointError.
[[gnu::cold]] inline void decode_manifest(const std::string& path, const JsonValue& root,
                                          JobState& to) {
  if (const std::uint64_t format = json_natural(root, "format"); format != checkpoint_format)
    throw CheckpointError(
        path,
        "the checkpoint has format {}, but this library (version {}) reads format "
        "{}; use the version of lockstep that wrote it, {}",
        format, LOCKSTEP_VERSION, checkpoint_format, json_text(root, "library"));
  to.steps = json_natural(root, "steps");
  to.seed = json_natural(root, "seed");
  to.has_averages_in_weights = json_boolean(root, "has_averages_in_weights");
  to.passes = json_natural(root, "passes");
  if (json_find(root, "examples")) to.examples = json_natural(root, "examples");
  to.replicas = static_cast<std::size_t>(json_natural(root, "replicas"));
  to.workers = static_cast<std::size_t>(json_natural(root, "workers"));
  if (const JsonValue rate = json_member(root, "rate"); rate.kind() != JsonKind::null)
    to.rate = json_double(rate);
  const JsonValue scale = json_member(root, "loss_scale");
  to.loss_scale = {json_double(json_member(scale, "scale")), json_natural(scale, "finite_steps"),
                   json_natural(scale, "skipped")};
  if (!is_finite(to.loss_scale.scale) || !(to.loss_scale.scale > 0))
    throw JsonError("the loss scale is {}; it must be finite and above 0", to.loss_scale.scale);
  if (to.loss_scale.skipped > to.steps)
    throw JsonError("the member \"loss_scale\" counts more skipped steps than steps");
  if (const JsonValue position = json_member(root, "position"); position.is_object())
    to.position = decode_position(position);
  for (const JsonValue& field : json_list(root, "signature")) {
    const auto pair = field.is_list() ? field.values() : std::vector<JsonValue>{};
    if (pair.size() != 2 || !pair[0].is_text() || !pair[1].is_text())
      throw JsonError("a field of \"signature\" is not a pair of strings");
    to.signature.emplace_back(pair[0].text(), pair[1].text());
  }
  for (const JsonValue& callback : json_list(root, "callbacks")) {
    CallbackState state;
    const JsonValue numbers = json_member(callback, "numbers");
    if (!numbers.is_object()) throw JsonError("the numbers of a callback are not an object");
    for (const JsonMember& member : numbers.members())
      state.set(std::string(member.key), numbers_of(numbers, member.key));
    to.callbacks.emplace_back(json_text(callback, "name"), std::move(state));
  }
  to.settings = decode_settings(root);
  const auto best = json_find(root, "best");
  if (!best) return convert_best(to);
  if (best->kind() != JsonKind::null)
    to.best = BestCheckpoint{std::string(json_text(*best, "name")),
                             json_double(json_member(*best, "value")), json_natural(*best, "step")};
}

/// Refuses buffers of each replica where the job has one set of them, and the reverse. Ordinary jobs
/// have no such field. \throws UsageError naming both.
[[gnu::cold]] inline void check_buffers(const std::string& path, const Signature& saved,
                                        const StateLayout& job) {
  if (saved.empty() || job.signature.empty()) return;
  const auto of = [](const Signature& fields) {
    const auto found = std::find_if(fields.begin(), fields.end(),
                                    [](const auto& field) { return field.first == buffers_field; });
    return found == fields.end() ? std::string()
                                 : found->second;  // "10 of 3 replicas under diloco"
  };
  const std::string before = of(saved), now = of(job.signature);
  if (before == now) return;
  const auto text = [](const std::string& value, const std::string& policy) {
    const std::size_t at = value.find(' ');
    if (value.empty())
      return format_text("one set of {}{}", buffers_field,
                         policy.empty() ? "" : ", under " + policy);
    return format_text("{}{}, {} in all", buffers_field, value.substr(std::min(at, value.size())),
                       value.substr(0, at));
  };
  throw UsageError(
      "checkpoint {}: the checkpoint has {}; this job has {}; continue with the same policy and "
      "replicas, or start in another directory, with load_weights from the weights alone",
      path, text(before, ""), text(now, job.policy));
}

/// A description of layers without the marks of frozen ones: a checkpoint fits a network whatever of
/// it is frozen.
[[gnu::cold]] inline std::string without_frozen(std::string layers) {
  for (std::size_t at; (at = layers.find(frozen_mark)) != std::string::npos;)
    layers.erase(at, frozen_mark.size());
  return layers;
}

/// The layers in a signature, with the marks; empty if it has none.
[[gnu::cold]] inline std::string_view layers_of(const Signature& signature) {
  for (const auto& field : signature)
    if (field.first == "layers") return field.second;
  return {};
}

/// Compares signatures. \throws UsageError naming the first field that differs.
[[gnu::cold]] inline std::string check_continues(const std::string& path, const JobState& saved,
                                                 const StateLayout& job) {
  // These change how results are rounded, not what is computed.
  constexpr std::array<std::string_view, 4> rounding = {
      "device", "arithmetic", "the library's arithmetic", "virtual shards"};
  std::string notes;
  for (const auto& field : job.signature) {  // clang 14 captures no structured binding
    const auto& [name, value] = field;
    const auto found = std::find_if(saved.signature.begin(), saved.signature.end(),
                                    [&](const auto& other) { return other.first == field.first; });
    if (name == buffers_field || found == saved.signature.end() || found->second == value) continue;
    // The precision, after the device's name, changes more than rounding: loss scaling, for one.
    const auto precision_of = [](const std::string& device) {
      return device.substr(std::min(device.find(' '), device.size()));
    };
    const bool rounds_only =
        std::find(rounding.begin(), rounding.end(), name) != rounding.end() &&
        (name != "device" || precision_of(found->second) == precision_of(value));
    if (name == "layers" && without_frozen(found->second) == without_frozen(value)) continue;
    if (!rounds_only)
      throw UsageError(
          "checkpoint {}: {} was {} and is {} now; continue with the same {}, or start in another "
          "directory",
          path, name, found->second, value, name);
    notes +=
        format_text("{}{} was {} and is {}", notes.empty() ? "" : "; ", name, found->second, value);
  }
  check_buffers(path, saved.signature, job);
  return notes;
}

[[gnu::cold]] inline std::string manifest_of(const CheckpointEntry& entry) {
  return entry.path + "/" + std::string(CheckpointDirectory::manifest_name);
}

/// The state without buffers. \throws as decode_state.
[[gnu::cold]] inline JobState decode_description(const CheckpointEntry& entry,
                                                 const StateLayout& job, std::string& notes) {
  JobState state;
  const std::string manifest = manifest_of(entry);
  try {
    const JsonDocument document(entry.manifest, manifest, {.bytes = entry.manifest.size()});
    decode_manifest(manifest, document.root(), state);
  } catch (const JsonError& e) {
    throw CheckpointError(manifest, "{}; it was written by another program or version", e.what());
  }
  notes = check_continues(entry.path, state, job);
  return state;
}

void check_file_size(const CheckpointEntry& entry, std::string_view file, std::uint64_t size,
                     const std::vector<ParameterInfo>& parameters, const StateLayout& job) {
  // Bytes of a safetensors head; a byte of a name has up to six there.
  constexpr std::uint64_t of_head = 4096, of_tensor = 256;
  const auto heads = [&](std::string_view slot) {
    std::uint64_t bytes = 0;
    for (const ParameterInfo& p : parameters)
      bytes += of_tensor + 6 * (slot.size() + p.name.size());
    return bytes;
  };
  std::uint64_t most = 0;
  if (file == weights_file_name) most = of_head + heads({}) + job.weights + job.state;
  if (file == optimizer_file_name) most = of_head;
  for (const std::string& slot : job.slot_names)
    if (file == optimizer_file_name) most += heads(slot) + job.weights;
  // Callbacks have lists of numbers and, such as EarlyStopping, copies of the model.
  constexpr std::uint64_t copies = 16, numbers = std::uint64_t{1} << 31;
  if (file == callbacks_file_name) most = copies * (job.weights + job.state) + numbers;
  if (size <= most) return;
  std::string notes;
  const JobState saved = decode_description(entry, job, notes);
  if (file == kept_file_name && saved.replicas < size &&
      size / (saved.replicas + 1) <= of_head + heads("factors_18446744073709551615") + job.weights)
    return;
  throw CheckpointError(
      manifest_of(entry),
      "it lists {} with {} bytes, and for this model at most {} are possible; the "
      "checkpoint is damaged or of another program, use an older one",
      quote(file), size, most);
}

/// The weights and slots of an entry that has only the heads of their files.
[[gnu::cold]] inline std::shared_ptr<DistantBuffers> distant_buffers(
    const CheckpointEntry& entry, const std::vector<ParameterInfo>& parameters,
    const StateLayout& job) {
  const std::string manifest = manifest_of(entry);
  for (const std::string_view name : {weights_file_name, optimizer_file_name})
    if (!entry.files.contains(std::string(name)))
      throw CheckpointError(manifest, "it lists no file {}; it was written by another program",
                            name);
  const JsonDocument document(entry.manifest, manifest, {.bytes = entry.manifest.size()});
  auto files = std::make_shared<FileBuffers>(document.root());
  files->add(entry, weights_file_name, "", parameters, job.type, 0, 1);
  for (std::size_t i = 0; i < job.slot_names.size(); ++i)
    files->add(entry, optimizer_file_name, job.slot_names[i] + "/", parameters, job.type, 2 + i,
               std::nullopt);
  return files;
}

JobState decode_state(CheckpointEntry entry, const std::vector<ParameterInfo>& parameters,
                      const StateLayout& job, std::string& notes) {
  JobState state = decode_description(entry, job, notes);
  const std::string manifest = manifest_of(entry);
  const auto file = [&](std::string_view name) {
    const auto found = entry.files.find(std::string(name));
    if (found == entry.files.end())
      throw CheckpointError(manifest, "it lists no file {}; it was written by another program",
                            name);
    return SafetensorsFile::parse(entry.path + "/" + found->first, std::move(found->second));
  };
  try {
    state.type = job.type;
    if (job.is_distant) {
      state.distant = distant_buffers(entry, parameters, job);
      for (const std::string& slot : job.slot_names)
        state.slot_values.emplace_back(slot, std::vector<std::byte>());
    } else {
      {
        const SafetensorsFile weights = file(weights_file_name);
        state.weights.resize(job.weights);
        state.state.resize(job.state);
        copy_tensors(weights, "", parameters, {state.type, state.weights, state.state}, false);
      }
      const SafetensorsFile optimizer = file(optimizer_file_name);
      const bool may_lack = layers_of(state.signature) != layers_of(job.signature);
      for (std::size_t i = 0; i < job.slot_names.size(); ++i) {
        const std::string& slot = job.slot_names[i];
        state.slot_values.emplace_back(slot, std::vector<std::byte>(job.weights));
        const ValueBytes<std::byte> to{state.type, state.slot_values.back().second, {}};
        if (may_lack)
          start_slot(optimizer, slot, parameters,
                     i < job.slot_starts.size() ? job.slot_starts[i] : 0,
                     {state.type, state.weights, state.state}, to);
        copy_tensors(optimizer, slot + "/", parameters, to, true, may_lack);
      }
    }
    if (job.factors_layout > 0 && entry.files.contains(std::string(kept_file_name))) {
      const SafetensorsFile kept = file(kept_file_name);
      KeptGradients& all = *(state.kept = std::make_shared<KeptGradients>());
      const auto read = [&](const std::string& name, std::vector<std::byte>& to) {
        to.resize(job.weights);
        copy_tensors(kept, name + "/", parameters, {state.type, to, {}}, true);
      };
      for (std::size_t r = 0; r < state.replicas; ++r)
        read(kept_name(r), all.of_replica.emplace_back());
      const auto& tensors = kept.tensors();
      if (std::any_of(tensors.begin(), tensors.end(), [&](const SafetensorsTensor& tensor) {
            return tensor.name.starts_with(factors_name(job.factors_layout) + "/");
          })) {
        all.factors_layout = job.factors_layout;
        read(factors_name(job.factors_layout), all.factors);
      }
    }
    const SafetensorsFile callbacks = file(callbacks_file_name);
    state.totals = callbacks.values<double>("/totals");
    if (state.position) state.position->logs.sums = callbacks.values<double>("/sums");
    for (const SafetensorsTensor& tensor : callbacks.tensors())
      for (auto& callback : state.callbacks) {
        const std::string prefix = callback.first + "/";
        if (tensor.name.size() == prefix.size() || !tensor.name.starts_with(prefix)) continue;
        const std::string name = tensor.name.substr(prefix.size());
        if (tensor.dtype == DType::float64)
          callback.second.set(name, callbacks.values<double>(tensor.name));
        else
          callback.second.set(name,
                              std::vector<std::byte>(tensor.bytes.begin(), tensor.bytes.end()));
      }
  } catch (const WeightsError& e) {
    throw CheckpointError(manifest, "the checkpoint does not fit the model: {}", e.what());
  }
  if (state.totals.size() != job.totals ||
      (state.position && state.position->logs.sums.size() != job.totals))
    throw CheckpointError(manifest, "it has sums of {} metrics' states, but the model's have {}",
                          state.totals.size(), job.totals);
  return state;
}

}  // namespace lockstep::detail
