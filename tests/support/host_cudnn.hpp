/// \file
/// A cuDNN that computes convolutions on the host instead of a GPU. Invariant: each graph has
/// exactly one engine.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "lockstep/devices/cuda/libraries/cudnn.hpp"
#include "support/host_cudnn_graph.hpp"
#include "support/host_gpu.hpp"

namespace testing {

/// Replaces cuDNN for its lifetime. Construct it after HostGpu, and destroy its users first.
class HostCudnn {
 public:
  HostCudnn() : instead_(table_) { current = this; }
  ~HostCudnn() { current = nullptr; }

  std::atomic<std::size_t> runs = 0;  ///< number of graphs executed

 private:
  using Name = host_cudnn::Name;
  using Made = host_cudnn::Made;
  using Part = host_cudnn::Part;

  static Part& of(cudnnBackendDescriptor_t d) { return *reinterpret_cast<Part*>(d); }

  /// Stands for a plan's JSON; valid in this process only.
  static std::string plan_name(const Made& plan) {
    const Part config = plan.parts.at(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG).at(0);
    const std::string name =
        std::to_string(getpid()) + " " + std::to_string(reinterpret_cast<std::uintptr_t>(&*config));
    const std::scoped_lock lock(named_mutex);
    named[name] = config;
    return name;
  }
  static bool read_plan(Made& plan) {
    const auto text = plan.list<char>(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
    const std::scoped_lock lock(named_mutex);
    const auto known = named.find(std::string(text.begin(), text.end()));
    if (known == named.end()) return false;
    plan.parts[CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG] = {known->second};
    return true;
  }

  static cudnnStatus_t answer(const Made& d, Name name, std::int64_t* count, void* values) {
    *count = 1;
    switch (name) {
      case CUDNN_ATTR_ENGINEHEUR_RESULTS: {
        auto engine = std::make_shared<Made>(Made{CUDNN_BACKEND_ENGINE_DESCRIPTOR, {}, {}});
        engine->parts[CUDNN_ATTR_ENGINE_OPERATION_GRAPH] =
            d.parts.at(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
        of(*static_cast<cudnnBackendDescriptor_t*>(values))->parts[CUDNN_ATTR_ENGINECFG_ENGINE] = {
            engine};
        break;
      }
      case CUDNN_ATTR_ENGINECFG_ENGINE:
        of(*static_cast<cudnnBackendDescriptor_t*>(values)) = d.parts.at(name).at(0);
        break;
      case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
        *count = 0;
        break;
      case CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION: {
        const std::string json = plan_name(d);
        *count = static_cast<std::int64_t>(json.size());
        if (values != nullptr) std::memcpy(values, json.data(), json.size());
        break;
      }
      default:
        std::memset(values, 0, sizeof(std::int64_t));  // a plan's workspace
    }
    return CUDNN_STATUS_SUCCESS;
  }

  static lockstep::detail::cuda::Cudnn table() {
    lockstep::detail::cuda::Cudnn t;
    t.cudnnGetVersion = [] { return std::size_t{99999}; };
    t.cudnnGetErrorString = [](cudnnStatus_t) { return "an error"; };
    t.cudnnGetLastErrorString = [](char* text, std::size_t) { *text = 0; };
    t.cudnnCreate = [](cudnnHandle_t* h) {
      return *h = reinterpret_cast<cudnnHandle_t>(32), CUDNN_STATUS_SUCCESS;
    };
    t.cudnnDestroy = [](cudnnHandle_t) { return CUDNN_STATUS_SUCCESS; };
    t.cudnnSetStream = [](cudnnHandle_t, cudaStream_t) { return CUDNN_STATUS_SUCCESS; };
    t.cudnnBackendCreateDescriptor = [](cudnnBackendDescriptorType_t type,
                                        cudnnBackendDescriptor_t* d) {
      *d = reinterpret_cast<cudnnBackendDescriptor_t>(
          new Part(std::make_shared<Made>(Made{type, {}, {}})));
      return CUDNN_STATUS_SUCCESS;
    };
    t.cudnnBackendDestroyDescriptor = [](cudnnBackendDescriptor_t d) {
      return delete &of(d), CUDNN_STATUS_SUCCESS;
    };
    t.cudnnBackendSetAttribute = [](cudnnBackendDescriptor_t d, Name name,
                                    cudnnBackendAttributeType_t type, std::int64_t count,
                                    const void* values) {
      if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        auto& all = of(d)->parts[name];
        all.clear();
        for (std::int64_t i = 0; i < count; ++i)
          all.push_back(of(static_cast<const cudnnBackendDescriptor_t*>(values)[i]));
        return CUDNN_STATUS_SUCCESS;
      }
      const std::int64_t size =
          type == CUDNN_TYPE_BOOLEAN || type == CUDNN_TYPE_CHAR ? 1
          : type == CUDNN_TYPE_INT64 || type == CUDNN_TYPE_VOID_PTR || type == CUDNN_TYPE_HANDLE
              ? 8
              : 4;
      const char* const from = static_cast<const char*>(values);
      of(d)->bytes[name].assign(from, from + size * count);
      return CUDNN_STATUS_SUCCESS;
    };
    t.cudnnBackendFinalize = [](cudnnBackendDescriptor_t d) {
      if (of(d)->bytes.count(CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION) > 0)
        return read_plan(*of(d)) ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
      return CUDNN_STATUS_SUCCESS;
    };
    t.cudnnBackendGetAttribute = [](cudnnBackendDescriptor_t d, Name name,
                                    cudnnBackendAttributeType_t, std::int64_t, std::int64_t* count,
                                    void* values) { return answer(*of(d), name, count, values); };
    t.cudnnBackendExecute = [](cudnnHandle_t, cudnnBackendDescriptor_t plan,
                               cudnnBackendDescriptor_t pack) {
      const Part graph = of(plan)
                             ->part(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
                             .part(CUDNN_ATTR_ENGINECFG_ENGINE)
                             .parts.at(CUDNN_ATTR_ENGINE_OPERATION_GRAPH)
                             .at(0);
      const auto names = of(pack)->list<std::int64_t>(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
      const auto all = of(pack)->list<void*>(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
      std::map<std::int64_t, void*> places;
      for (std::size_t i = 0; i < names.size(); ++i) places[names[i]] = all[i];
      ++current->runs;
      HostGpu::call([graph, places] { host_cudnn::run(*graph, places); });
      return CUDNN_STATUS_SUCCESS;
    };
    return t;
  }

  static inline HostCudnn* current = nullptr;
  static inline std::mutex named_mutex;
  static inline std::map<std::string, Part> named;
  lockstep::detail::cuda::Cudnn table_ = table();
  lockstep::detail::cuda::EntryPoints<lockstep::detail::cuda::Cudnn>::Override instead_;
};

}  // namespace testing
