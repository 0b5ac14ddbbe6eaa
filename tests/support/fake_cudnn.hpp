/// \file
/// A fake cuDNN that records its calls and computes nothing; not for tests of values.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/devices/cuda/libraries/cudnn.hpp"
#include "support/recorder.hpp"

namespace testing {

/// Replaces cuDNN for its lifetime. Construct it after HostGpu, and destroy its users first. In
/// addition to function names it records `finalize plan` and `finalize heuristics`.
class FakeCudnn : public Recorder {
 public:
  FakeCudnn() : table_(recorded()), instead_(table_) { fake = this; }
  ~FakeCudnn() { fake = nullptr; }

  std::int64_t engines = 3;  ///< returned by the heuristics; a plan's JSON is its engine's index
  std::int64_t workspace = 1000;  ///< bytes that each plan needs
  /// Number of descriptors created and not destroyed yet.
  std::size_t alive() const { return alive_.size(); }
  /// Arguments of the last execute: tensor addresses by unique id, and the workspace.
  std::map<std::int64_t, void*> places;
  void* workspace_place = nullptr;
  cudnnBackendDescriptor_t executed = nullptr;  ///< the executed plan
  int engine = -1;                              ///< engine of that plan
  cudaStream_t stream = nullptr;
  std::function<void()> at_execute{};  ///< called in each execute, after the members above are set

 private:
  struct Fake {
    cudnnBackendDescriptorType_t type;
    std::map<cudnnBackendAttributeName_t, std::vector<char>> attributes{};
    int engine = -1;
  };
  static inline FakeCudnn* fake = nullptr;

  static Fake& of(cudnnBackendDescriptor_t d) { return *reinterpret_cast<Fake*>(d); }

  template <class T>
  static std::vector<T> list(Fake& f, cudnnBackendAttributeName_t name) {
    const std::vector<char>& bytes = f.attributes[name];
    std::vector<T> values(bytes.size() / sizeof(T));
    if (!values.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  static cudnnStatus_t answer(const Fake& f, cudnnBackendAttributeName_t name, std::int64_t most,
                              std::int64_t* count, void* values) {
    switch (name) {
      case CUDNN_ATTR_ENGINEHEUR_RESULTS:
        *count = std::min(most, fake->engines);
        for (int i = 0; i < *count; ++i)
          of(static_cast<cudnnBackendDescriptor_t*>(values)[i]).engine = i;
        break;
      case CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION: {
        const std::string json = "{" + std::to_string(f.engine) + "}";
        *count = static_cast<std::int64_t>(json.size() + 1);
        if (values != nullptr) std::memcpy(values, json.c_str(), json.size() + 1);
        break;
      }
      case CUDNN_ATTR_ENGINECFG_ENGINE:
        *count = 1;
        break;
      case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        *count = 0;
        break;
      default:
        *count = 1;
        std::memcpy(values, &fake->workspace, sizeof fake->workspace);
    }
    return CUDNN_STATUS_SUCCESS;
  }

  /// Sets the engine of a plan when it is finalized; false if there is no such engine.
  static bool find_engine(Fake& plan) {
    if (plan.attributes.count(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION) > 0) {
      const auto all = list<char>(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
      const std::string_view json(all.data(), all.size());
      if (!json.starts_with('{') || !json.ends_with('}')) return false;
      const auto r = std::from_chars(json.data() + 1, json.data() + json.size(), plan.engine);
      return r.ec == std::errc{} && plan.engine < fake->engines;
    }
    plan.engine =
        of(list<cudnnBackendDescriptor_t>(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).at(0))
            .engine;
    return true;
  }

  static lockstep::detail::cuda::Cudnn table() {
    lockstep::detail::cuda::Cudnn t;
    t.cudnnGetVersion = [] { return std::size_t{99999}; };
    t.cudnnGetErrorString = [](cudnnStatus_t) { return "CUDNN_STATUS_FAKE"; };
    t.cudnnGetLastErrorString = [](char* text, std::size_t) { std::strcpy(text, "no reason"); };
    t.cudnnCreate = [](cudnnHandle_t* h) {
      *h = reinterpret_cast<cudnnHandle_t>(32);
      return CUDNN_STATUS_SUCCESS;
    };
    t.cudnnDestroy = [](cudnnHandle_t) { return CUDNN_STATUS_SUCCESS; };
    t.cudnnSetStream = [](cudnnHandle_t, cudaStream_t s) {
      fake->stream = s;
      return CUDNN_STATUS_SUCCESS;
    };
    t.cudnnBackendCreateDescriptor = [](cudnnBackendDescriptorType_t type,
                                        cudnnBackendDescriptor_t* d) {
      *d = reinterpret_cast<cudnnBackendDescriptor_t>(new Fake{type});
      fake->alive_.insert(*d);
      return CUDNN_STATUS_SUCCESS;
    };
    t.cudnnBackendDestroyDescriptor = [](cudnnBackendDescriptor_t d) {
      fake->alive_.erase(d);
      delete &of(d);
      return CUDNN_STATUS_SUCCESS;
    };
    t.cudnnBackendSetAttribute = [](cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                    cudnnBackendAttributeType_t type, std::int64_t count,
                                    const void* values) {
      const std::int64_t size = type == CUDNN_TYPE_BOOLEAN || type == CUDNN_TYPE_CHAR ? 1
                                : type == CUDNN_TYPE_INT64 || type == CUDNN_TYPE_VOID_PTR ||
                                        type == CUDNN_TYPE_BACKEND_DESCRIPTOR ||
                                        type == CUDNN_TYPE_HANDLE
                                    ? 8
                                    : 4;
      const char* const from = static_cast<const char*>(values);
      of(d).attributes[name].assign(from, from + size * count);
      return CUDNN_STATUS_SUCCESS;
    };
    t.cudnnBackendFinalize = [](cudnnBackendDescriptor_t d) {
      const bool plan = of(d).type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
                 heuristics = of(d).type == CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR;
      const auto [fails, status] = plan         ? fake->note("finalize plan")
                                   : heuristics ? fake->note("finalize heuristics")
                                                : std::pair{false, 0};
      if (plan && !fails && !find_engine(of(d))) return CUDNN_STATUS_BAD_PARAM;
      return static_cast<cudnnStatus_t>(fails ? status : 0);
    };
    t.cudnnBackendGetAttribute = [](cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                    cudnnBackendAttributeType_t, std::int64_t most,
                                    std::int64_t* count, void* values) {
      return answer(of(d), name, most, count, values);
    };
    t.cudnnBackendExecute = [](cudnnHandle_t, cudnnBackendDescriptor_t plan,
                               cudnnBackendDescriptor_t pack) {
      const auto names = list<std::int64_t>(of(pack), CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
      const auto all = list<void*>(of(pack), CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
      fake->places.clear();
      for (std::size_t i = 0; i < names.size(); ++i) fake->places[names[i]] = all[i];
      fake->workspace_place = list<void*>(of(pack), CUDNN_ATTR_VARIANT_PACK_WORKSPACE).at(0);
      fake->executed = plan;
      fake->engine = of(plan).engine;
      if (fake->at_execute) fake->at_execute();
      return CUDNN_STATUS_SUCCESS;
    };
    return t;
  }
  static lockstep::detail::cuda::Cudnn recorded() {
    lockstep::detail::cuda::Cudnn table = FakeCudnn::table();
    LOCKSTEP_CUDA_CUDNN(LOCKSTEP_RECORD)
    return table;
  }

  std::set<cudnnBackendDescriptor_t> alive_;
  lockstep::detail::cuda::Cudnn table_;
  lockstep::detail::cuda::EntryPoints<lockstep::detail::cuda::Cudnn>::Override instead_;
};

}  // namespace testing
