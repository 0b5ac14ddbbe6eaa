/// \file
/// Trains a network that draw.py has drawn for five steps: on one device, in slices on one device, on
/// two replicas, or as a worker of a job of two; with DIFFERENTIAL_CPU also on Cpu. Reads SEED.data, writes SEED.<run>.out and the exported network.
#pragma once

#include <cstddef>
#include <cstdio>
#include <exception>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/cluster.hpp"
#include "lockstep/files/safetensors.hpp"
#include "lockstep/heads.hpp"
#include "lockstep/lockstep.hpp"
#include "lockstep/onnx.hpp"
#include "lockstep/reference.hpp"
#ifdef DIFFERENTIAL_CPU
#include "lockstep/cpu.hpp"
#endif

namespace ls = lockstep;

namespace differential {

using Double = ls::Reference<double>;

struct Case {
  std::string prefix;  ///< of the network's files
  bool is_in_job = false;
};

/// Arrays by name.
class Results {
 public:
  void set(const std::string& name, std::vector<double> values) { kept_[name] = std::move(values); }
  void add(const std::string& name, double value) { kept_[name].push_back(value); }
  void write(const std::string& path) const {
    std::vector<ls::SafetensorsEntry> entries;
    for (const auto& [name, values] : kept_)
      entries.push_back(
          {name, ls::DType::float64, {values.size()}, std::as_bytes(std::span(values))});
    ls::write_safetensors(path, entries);
  }

 private:
  std::map<std::string, std::vector<double>> kept_;
};

/// Writes the files for other frameworks, or expects an error for a network that has no form there.
template <class Model>
void export_model(Model& model, const Case& c, bool is_exported) {
  if (!is_exported) {
    try {
      ls::export_onnx(model, c.prefix + ".onnx");
    } catch (const ls::Error&) {
      return;
    }
    throw std::runtime_error("the network has masks or TimeDistributed, but was exported to ONNX");
  }
  ls::export_onnx(model, c.prefix + ".onnx");
  model.save_weights(c.prefix + ".safetensors");
  model.save_architecture(c.prefix + ".json");
}

template <class Net, class Strategy, class Losses, class Optimizer>
void train_on(const Case& c, const std::string& run, const Strategy& strategy, const Losses& losses,
              const Optimizer& optimizer, bool is_exported) {
  const auto file = ls::SafetensorsFile::read(c.prefix + ".data");
  ls::Model model{Net{}, strategy, losses, optimizer};
  using T = typename decltype(model)::T;
  const auto as_real = [](const std::vector<double>& v) {
    return std::vector<T>(v.begin(), v.end());
  };
  const auto as_double = [](const auto& v) { return std::vector<double>(v.begin(), v.end()); };
  for (const ls::ParameterInfo& p : model.parameters())
    model.set_weights(p.name, as_real(file.values<double>("init/" + p.name)));
  Results results;
  const auto values = [&](const char* name, int step) {
    return as_real(file.values<double>(name + std::to_string(step)));
  };
  const bool is_weighted = file.contains("w0");
  const auto weights = [&](int step) { return is_weighted ? values("w", step) : std::vector<T>(); };
  for (int step = 0; step < 5; ++step) {
    const auto x = values("x", step), y = values("y", step), w = weights(step);
    for (const auto& [name, value] : model.train_on_batch(ls::global_batch, x, y, w))
      results.add("loss/" + name, value);
  }
  const auto x = values("x", 0), y = values("y", 0), w = weights(0);
  for (const auto& [name, value] : model.test_on_batch(ls::global_batch, x, y, w))
    results.add("test/" + name, value);
  const auto predictions = model.predict(ls::global_batch, x);
  results.set("predict", as_double(predictions.elements()));
  for (const ls::ParameterInfo& p : model.parameters())
    results.set("weights/" + p.name, as_double(model.weights(p.name)));
  if (run == "one") {
    export_model(model, c, is_exported);
  }
  if (model.is_chief()) results.write(c.prefix + "." + run + ".out");
}

template <class Net, class Losses, class Optimizer>
void train(const Case& c, const Losses& losses, const Optimizer& optimizer, std::size_t slices,
           bool is_exported) {
  const auto on = [&](const char* run, const auto& strategy) {
    train_on<Net>(c, run, strategy, losses, optimizer, is_exported);
  };
  if (c.is_in_job) {
    on("job", ls::MultiWorkerMirrored<Double>{.virtual_shards = slices});
  } else {
    on("one", ls::OneDevice<Double>{});
    if (slices > 0) on("slices", ls::OneDevice<Double>{.virtual_shards = slices});
#ifdef DIFFERENTIAL_CPU
    on("cpu", ls::OneDevice<ls::Cpu>{.on = {.threads = 1}});
#endif
    on("mirrored", ls::Mirrored<Double>{.replicas = 2, .virtual_shards = slices});
  }
}

/// Arguments: FOLDER alone|job [SEED].
template <class Body>
void run(int argc, char** argv, int seed, const Body& body) {
  if (argc > 3 && std::to_string(seed) != argv[3]) return;
  try {
    body(Case{std::string(argv[1]) + "/" + std::to_string(seed),
              std::string_view(argv[2]) == "job"});
  } catch (const std::exception& e) {
    std::printf("%d FAILED %s\n", seed, e.what());
  }
  std::fflush(stdout);
}

}  // namespace differential
