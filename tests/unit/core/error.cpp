#include "lockstep/core/error.hpp"

#include <catch2/catch_test_macros.hpp>
#include <type_traits>

TEST_CASE("each kind of error is caught as lockstep::Error") {
  STATIC_CHECK(std::is_base_of_v<std::runtime_error, lockstep::Error>);
  STATIC_CHECK(std::is_base_of_v<lockstep::Error, lockstep::UsageError>);
  STATIC_CHECK(std::is_base_of_v<lockstep::Error, lockstep::DeviceError>);
  STATIC_CHECK(std::is_base_of_v<lockstep::FileError, lockstep::DataError>);
  STATIC_CHECK(std::is_base_of_v<lockstep::FileError, lockstep::WeightsError>);
  CHECK_THROWS_AS(throw lockstep::DataError("a.idx", "truncated"), lockstep::Error);
}

TEST_CASE("an error about a file says its path first, and keeps it") {
  const lockstep::WeightsError error("w.safetensors", "the header is cut off; copy the file again");
  CHECK(std::string(error.what()) == "w.safetensors: the header is cut off; copy the file again");
  CHECK(error.path() == "w.safetensors");
}
