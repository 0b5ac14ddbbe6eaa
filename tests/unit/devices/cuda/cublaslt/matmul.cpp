/// \file
/// The real cuBLASLt without a GPU accepts all descriptions of products.
#include "lockstep/devices/cuda/cublaslt/matmul.hpp"

#include <catch2/catch_message.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <string>

using namespace lockstep;
using namespace lockstep::detail::cuda;

TEST_CASE("cuBLASLt accepts a product's description, up to the call that needs a GPU") {
  try {
    static_cast<void>(cublaslt());
  } catch (const DeviceError& error) {
    SKIP(error.what());
  }
  for (const cudaDataType_t type : {CUDA_R_32F, CUDA_R_16BF})
    for (const cublasLtEpilogue_t epilogue :
         {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_BGRADA,
          CUBLASLT_EPILOGUE_RELU, CUBLASLT_EPILOGUE_RELU_BIAS})
      for (const bool transposed : {false, true}) {
        LtProduct p;
        p.rows = 64;
        p.columns = 10;
        p.depth = 128;
        p.left_transposed = p.right_transposed = transposed;
        p.factors = p.result = p.bias = type;
        p.epilogue = epilogue;
        INFO("type " << type << ", epilogue " << epilogue);
        // Without a handle this is the first call that can fail.
        CHECK_THROWS_WITH(
            LtMatmul(nullptr, p, 1 << 20),
            Catch::Matchers::StartsWith("cuda: asking cuBLASLt for algorithms failed: "));
      }
}
