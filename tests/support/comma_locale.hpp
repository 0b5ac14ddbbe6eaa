/// \file
/// A locale with a decimal comma, created by localedef in a temporary folder.
#pragma once

#include <stdlib.h>

#include <clocale>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <locale>
#include <string>

#include <catch2/catch_test_macros.hpp>

/// Scope that sets the numeric locale of C and C++. Skips the test if the system cannot create the
/// locale.
class CommaLocale {
 public:
  CommaLocale() : folder_(std::filesystem::temp_directory_path() / "lockstep-locale-XXXXXX") {
    REQUIRE(::mkdtemp(folder_.data()) != nullptr);
    std::ofstream(folder_ + "/source") << "comment_char %\nescape_char /\nLC_NUMERIC\n"
                                          "decimal_point \"<U002C>\"\nthousands_sep \"<U002E>\"\n"
                                          "grouping 3;3\nEND LC_NUMERIC\n";
    const std::string make =
        "localedef -c -i " + folder_ + "/source -f UTF-8 " + folder_ + "/comma >/dev/null 2>&1";
    // localedef exits with 1 because the other categories are missing.
    is_made_ = std::system(make.c_str()) >= 0 && ::setenv("LOCPATH", folder_.c_str(), 1) == 0 &&
               std::setlocale(LC_NUMERIC, "comma") != nullptr;
    if (!is_made_) {
      clean();
      SKIP("localedef makes no locale here; on Debian: apt-get install locales");
    }
    std::locale::global(std::locale(std::locale(), "comma", std::locale::numeric));
    REQUIRE(std::stod("1,5") == 1.5);
  }
  CommaLocale(const CommaLocale&) = delete;
  CommaLocale& operator=(const CommaLocale&) = delete;
  ~CommaLocale() { clean(); }

 private:
  void clean() {
    std::locale::global(std::locale::classic());
    std::setlocale(LC_ALL, "C");
    ::unsetenv("LOCPATH");
    std::filesystem::remove_all(folder_);
  }

  std::string folder_;
  bool is_made_ = false;
};
