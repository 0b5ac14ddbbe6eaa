// AtomicFile: complete or absent; no temporary file remains after any failure.
#include "lockstep/files/atomic_file.hpp"

#include <grp.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>
#include <vector>

#include "support/child.hpp"

namespace ls = lockstep;
namespace fs = std::filesystem;
using Catch::Matchers::ContainsSubstring;

namespace {
struct Folder {
  fs::path path = fs::temp_directory_path() / ("lockstep_atomic_" + std::to_string(::getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  std::string operator/(const char* name) const { return (path / name).string(); }
  std::size_t entries() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(path), fs::directory_iterator()));
  }
};

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
}  // namespace

TEST_CASE("an atomic file appears at commit, complete, and replaces the old one") {
  const Folder folder;
  const std::string path = folder / "a.bin";
  std::ofstream(path) << "old";
  ls::AtomicFile file(path);
  file.write("ne");
  file.write("w!");
  CHECK(content(path) == "old");
  CHECK(folder.entries() == 2);
  file.commit();
  CHECK(content(path) == "new!");
  CHECK(folder.entries() == 1);
  CHECK_THROWS_AS(file.write("more"), ls::UsageError);
  CHECK_THROWS_AS(file.commit(), ls::UsageError);
}

TEST_CASE("a file is not written by what the program prints to a closed standard stream") {
  const Folder folder;
  const std::string path = folder / "a.bin";
  CHECK(testing::in_child([&] {
          for (const int stream : {0, 1, 2}) ::close(stream);
          ls::AtomicFile file(path);
          for (const int stream : {1, 2}) static_cast<void>(::write(stream, "progress", 8));
          file.write("weights");
          file.commit();
          return content(path) == "weights" ? 0 : 1;
        }) == 0);
}

TEST_CASE("an atomic file keeps permissions and owner of the file it replaces") {
  const Folder folder;
  const std::string path = folder / "a.bin";
  const auto facts = [&](const std::string& of) {
    struct ::stat found{};
    REQUIRE(::stat(of.c_str(), &found) == 0);
    return found;
  };
  const auto replace = [&](const std::string& at) {
    ls::AtomicFile file(at);
    file.write("new");
    file.commit();
  };
  replace(path);
  const ::mode_t mask = ::umask(0);
  ::umask(mask);
  CHECK((facts(path).st_mode & 07777) == (0666 & ~mask));  // a new file gets its mode from the
                                                           // umask
  for (const ::mode_t mode : {0600u, 0644u, 0660u, 0444u}) {
    REQUIRE(::chmod(path.c_str(), mode) == 0);
    replace(path);
    CHECK((facts(path).st_mode & 07777) == mode);
  }
  REQUIRE(::chmod(path.c_str(), 0640) == 0);
  fs::create_symlink("a.bin", folder / "link");
  replace(folder / "link");
  CHECK((facts(path).st_mode & 07777) == 0640);
  if (::geteuid() != 0) return;  // only root can change a file's owner
  REQUIRE(::chown(path.c_str(), 4711, 4712) == 0);
  replace(path);
  CHECK(facts(path).st_uid == 4711);
  CHECK(facts(path).st_gid == 4712);

  // A process that is not in the file's group: its own group gets the rights of others.
  REQUIRE(::chmod(folder.path.c_str(), 0777) == 0);
  for (const auto& [mode, expected] : {std::pair<::mode_t, ::mode_t>{0660, 0600}, {0664, 0644}}) {
    REQUIRE(::chown(path.c_str(), 4711, 4712) == 0);
    REQUIRE(::chmod(path.c_str(), mode) == 0);
    const int status = testing::in_child([&] {
      if (::setgroups(0, nullptr) != 0 || ::setgid(4713) != 0 || ::setuid(4711) != 0 ||
          ::access(folder.path.c_str(), W_OK | X_OK) != 0)
        return 1;
      replace(path);
      return 0;
    });
    if (status == 1) return;  // a container in which root cannot change its user
    REQUIRE(status == 0);
    CHECK(facts(path).st_gid == 4713);
    CHECK((facts(path).st_mode & 07777) == expected);
  }
}

TEST_CASE("an atomic file that is not committed leaves no file") {
  const Folder folder;
  {
    ls::AtomicFile file(folder / "a.bin");
    file.write("x");
  }
  ls::check_writable(folder / "b.bin");
  CHECK(folder.entries() == 0);
}

TEST_CASE("a failed write keeps the old content and leaves no other file") {
  const Folder folder;
  const std::string path = folder / "a.bin";
  std::ofstream(path) << "old";
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  std::string message;
  {
    ls::AtomicFile file(path);
    rlimit small = before;
    small.rlim_cur = 1000;
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
    try {
      file.write(std::string(5000, 'x'));
    } catch (const ls::FileError& error) {
      message = error.what();
      CHECK(error.path() == path);
    }
    CHECK(folder.entries() == 1);
    ::setrlimit(RLIMIT_FSIZE, &before);
    CHECK_THROWS_AS(file.commit(), ls::UsageError);
  }
  std::signal(SIGXFSZ, handler);
  CHECK_THAT(message, ContainsSubstring(path) && ContainsSubstring("File too large") &&
                          ContainsSubstring("raise the limit of file sizes (ulimit -f)"));
  CHECK(content(path) == "old");
  CHECK(folder.entries() == 1);
}

TEST_CASE("a failed rename leaves no file") {
  const Folder folder;
  const std::string path = folder / "a.bin";
  ls::AtomicFile file(path);
  file.write("x");
  fs::create_directories(path + "/inside");
  CHECK_THROWS_WITH(file.commit(), ContainsSubstring(path) && ContainsSubstring("directory"));
  CHECK(folder.entries() == 1);
}

TEST_CASE("an atomic file rejects paths that cannot be files, and names them") {
  const Folder folder;
  const std::string long_name(300, 'n');
  CHECK_THROWS_WITH(ls::check_writable(folder / "missing/a.bin"),
                    ContainsSubstring("missing/a.bin") &&
                        ContainsSubstring("No such file or directory") &&
                        ContainsSubstring("create the folder"));
  CHECK_THROWS_WITH(ls::check_writable(folder.path.string()), ContainsSubstring("it is a folder"));
  CHECK_THROWS_WITH(ls::check_writable(folder.path.string() + "/"),
                    ContainsSubstring("it is a folder"));
  CHECK_THROWS_AS(ls::check_writable(""), ls::FileError);
  ls::AtomicFile too_long(folder / long_name.c_str());
  CHECK_THROWS_WITH(too_long.commit(), ContainsSubstring("File name too long"));
  CHECK(folder.entries() == 0);
}

TEST_CASE("a file name of maximum length can be written") {
  const Folder folder;
  const std::string name(255, 'n');
  ls::AtomicFile file(folder / name.c_str());
  file.write("x");
  file.commit();
  CHECK(content(folder / name.c_str()) == "x");
}

TEST_CASE("an atomic file rejects a FIFO or a link to a device and leaves it unchanged") {
  const Folder folder;
  const std::string fifo = folder / "fifo", link = folder / "null";
  REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
  fs::create_symlink("/dev/null", link);
  for (const auto& path : {fifo, link})
    CHECK_THROWS_WITH(ls::AtomicFile(path),
                      ContainsSubstring(path) && ContainsSubstring("not a regular file"));
  CHECK(fs::is_fifo(fifo));
  CHECK(fs::read_symlink(link) == "/dev/null");
  CHECK(folder.entries() == 2);
}

TEST_CASE("an atomic file is not written to a path that stands for an open file") {
  const Folder folder;
  const std::string path = folder / "run.log";
  std::FILE* const open = std::fopen(path.c_str(), "w");
  REQUIRE(open != nullptr);
  const std::string number = std::to_string(::fileno(open));
  fs::create_symlink("/dev/fd/" + number, folder / "link");  // as /dev/stdout
  for (const std::string& name :
       {"/dev/fd/" + number, "/proc/self/fd/" + number,
        "/proc/" + std::to_string(::getpid()) + "/fd/" + number, folder / "link"})
    CHECK_THROWS_WITH(ls::AtomicFile(name), ContainsSubstring(name + ": it stands for a file"));
  std::fputs("kept", open);
  std::fclose(open);
  CHECK(content(path) == "kept");
  CHECK(folder.entries() == 2);
  CHECK_NOTHROW(ls::check_writable(path));
}

TEST_CASE("an atomic file replaces the target of a link and keeps the link") {
  const Folder folder;
  const std::string path = folder / "inside/a.bin", link = folder / "link",
                    broken = folder / "broken";
  fs::create_directories(folder.path / "inside");
  std::ofstream(path) << "old";
  fs::create_symlink("inside/a.bin", link);
  ls::AtomicFile file(link);
  file.write("new!");
  CHECK(content(path) == "old");
  file.commit();
  CHECK(content(path) == "new!");
  CHECK(fs::is_symlink(link));
  fs::create_symlink("missing", broken);
  CHECK_THROWS_WITH(ls::AtomicFile(broken), ContainsSubstring("symbolic link whose target"));
  CHECK(fs::is_symlink(broken));
}
