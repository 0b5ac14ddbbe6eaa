// What the fuzzers ask of a parser of hostile text.
#pragma once

#include <cstdlib>
#include <string_view>

#include "lockstep/core/error.hpp"
#include "unit/cluster/support.hpp"

namespace fuzz {

inline void require(bool promise) {
  if (!promise) std::abort();
}

/// f() returns, or throws a ClusterError whose message is fit to print.
template <class F>
void refuses_or_returns(F&& f) {
  try {
    f();
  } catch (const lockstep::ClusterError& error) {
    require(cluster_test::fit_to_print(error.what()));
  }
}

/// f() returns, or throws a FileError about the file "fuzz" whose message is fit to print.
template <class F>
void refuses_file_or_returns(F&& f) {
  try {
    f();
  } catch (const lockstep::FileError& error) {
    require(cluster_test::fit_to_print(error.what()));
    require(std::string_view(error.what()).substr(0, 4) == "fuzz");
  }
}

}  // namespace fuzz
