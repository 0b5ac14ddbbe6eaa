#include "lockstep/files/file_status.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

using lockstep::file_status;
using lockstep::FileKind;

TEST_CASE("file_status returns the kind of a file, and follows links") {
  namespace fs = std::filesystem;
  const fs::path folder =
      fs::temp_directory_path() / ("lockstep_file_status_" + std::to_string(::getpid()));
  fs::create_directories(folder);
  std::ofstream(folder / "five") << "12345";
  fs::create_symlink("five", folder / "link");
  fs::create_symlink("nothing", folder / "broken");
  fs::create_symlink("loop", folder / "loop");
  REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);

  CHECK(file_status(folder).kind == FileKind::folder);
  CHECK(file_status(folder / "five").kind == FileKind::regular);
  CHECK(file_status(folder / "five").size == 5);
  CHECK(file_status(folder / "link").kind == FileKind::regular);
  CHECK(file_status(folder / "broken").kind == FileKind::missing);
  CHECK(file_status(folder / "five" / "below").kind == FileKind::missing);
  CHECK(file_status("").kind == FileKind::missing);
  CHECK(file_status(folder / "pipe").kind == FileKind::other);
  CHECK(file_status("/dev/null").kind == FileKind::other);
  CHECK(file_status(folder / "loop").kind == FileKind::unknown);
  CHECK(file_status(folder / "loop").error == ELOOP);
  fs::remove_all(folder);
}
