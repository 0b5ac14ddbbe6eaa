// Compiled once per program: which libraries it is built with depends on its device.
#include "support/versions.hpp"

#include <fmt/format.h>
#include <openssl/opensslv.h>
#include <rapidjson/rapidjson.h>
#include <zlib.h>

#include <vector>

#include <lockstep/core/version.hpp>

#ifdef LOCKSTEP_CUDA
#include <cuda.h>
#include <cudnn_version.h>
#include <nccl.h>
#elif __has_include(<oneapi/dnnl/dnnl_version.h>)
#include <oneapi/dnnl/dnnl_version.h>
#endif
#if __has_include(<asio/version.hpp>)
#include <asio/version.hpp>
#endif

namespace support {

std::string versions([[maybe_unused]] bool has_workers) {
  const std::string ssl = OPENSSL_VERSION_TEXT;  // "OpenSSL 3.0.19 27 Jan 2026"
  std::vector<std::string> libraries{
      fmt::format("fmt {}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100),
      "RapidJSON " RAPIDJSON_VERSION_STRING, "zlib " ZLIB_VERSION,
      ssl.substr(0, ssl.find(' ', ssl.find(' ') + 1))};
#ifdef LOCKSTEP_CUDA
  libraries.push_back(fmt::format("CUDA {}.{}", CUDA_VERSION / 1000, CUDA_VERSION / 10 % 100));
  libraries.push_back(fmt::format("cuDNN {}.{}.{}", CUDNN_MAJOR, CUDNN_MINOR, CUDNN_PATCHLEVEL));
  libraries.push_back(fmt::format("NCCL {}.{}.{}", NCCL_MAJOR, NCCL_MINOR, NCCL_PATCH));
#elif defined(DNNL_VERSION_MAJOR)
  libraries.push_back(
      fmt::format("oneDNN {}.{}.{}", DNNL_VERSION_MAJOR, DNNL_VERSION_MINOR, DNNL_VERSION_PATCH));
#endif
#ifdef ASIO_VERSION
  if (has_workers) {
    libraries.push_back(fmt::format("Asio {}.{}.{}", ASIO_VERSION / 100000,
                                    ASIO_VERSION / 100 % 1000, ASIO_VERSION % 100));
  }
#endif
  return fmt::format("lockstep {}\n{}", LOCKSTEP_VERSION, fmt::join(libraries, ", "));
}

}  // namespace support
