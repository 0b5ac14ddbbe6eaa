/// \file
/// A temporary directory for the folders of machines.
#pragma once

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cstdlib>
#include <filesystem>
#include <string>

struct Directory {
  Directory() { REQUIRE(::mkdtemp(path.data()) != nullptr); }
  ~Directory() { std::filesystem::remove_all(path); }
  std::string user() const { return path + "/lockstep-" + std::to_string(::geteuid()); }
  std::string path = "/tmp/lockstep_elastic_XXXXXX";
};
