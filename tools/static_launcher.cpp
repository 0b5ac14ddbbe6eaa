/// \file
/// The program that `./dev static NAME` puts next to lib/: it starts lib/NAME with the dynamic linker and the libraries of
/// its own folder. It is linked statically, so it runs on a machine without any library.
///
///     NAME --> lib/ld-linux-x86-64.so.2 --library-path lib --argv0 NAME lib/NAME ARGUMENTS
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <sys/auxv.h>
#include <unistd.h>

#ifndef LOCKSTEP_DYNAMIC_LINKER  // static_pack.sh defines the one of the program
#define LOCKSTEP_DYNAMIC_LINKER "ld-linux-x86-64.so.2"
#endif

namespace {

/// Writes the path of this executable into `path`. Without /proc, as in an empty root folder, it is the path of execve.
bool find_self(char (&path)[PATH_MAX]) {
  const ssize_t size = ::readlink("/proc/self/exe", path, PATH_MAX - 1);
  if (size > 0 && path[0] == '/') {
    path[size] = '\0';
    return true;
  }
  const auto* const started_as = reinterpret_cast<const char*>(::getauxval(AT_EXECFN));
  return started_as != nullptr && std::snprintf(path, PATH_MAX, "%s", started_as) < PATH_MAX;
}

}  // namespace

int main(int count, char** arguments) {
  static char self[PATH_MAX], linker[PATH_MAX + 64], program[2 * PATH_MAX], libraries[128 * 1024];
  if (!find_self(self)) {
    std::fprintf(stderr,
                 "static launcher: cannot find its own path: mount /proc, or start it by a path\n");
    return 127;
  }
  const char* name = self;
  char folder[PATH_MAX] = ".";
  if (char* const slash = std::strrchr(self, '/')) {
    name = slash + 1;
    std::snprintf(folder, sizeof folder, "%.*s", static_cast<int>(slash - self), self);
  }
  std::snprintf(linker, sizeof linker, "%s/lib/%s", folder, LOCKSTEP_DYNAMIC_LINKER);
  std::snprintf(program, sizeof program, "%s/lib/%s", folder, name);
  // --library-path replaces LD_LIBRARY_PATH, in which users list the folders of a GPU's libraries.
  const char* const more = std::getenv("LD_LIBRARY_PATH");
  const bool has_more = more != nullptr && *more != '\0';
  std::snprintf(libraries, sizeof libraries, "%s/lib%s%s", folder, has_more ? ":" : "",
                has_more ? more : "");

  auto** const command =
      static_cast<char**>(std::calloc(static_cast<std::size_t>(count) + 7, sizeof(char*)));
  if (command == nullptr) return 127;
  static char library_path[] = "--library-path", argv0[] = "--argv0";
  char* const fixed[] = {linker, library_path, libraries, argv0, count > 0 ? arguments[0] : program,
                         program};
  std::memcpy(command, fixed, sizeof fixed);
  for (int i = 1; i < count; ++i) command[5 + i] = arguments[i];
  ::execv(linker, command);
  std::fprintf(stderr, "%s: cannot start %s: %s; copy the whole folder that ./dev static made\n",
               name, linker, std::strerror(errno));
  return 127;
}
