# Defines Asio::asio: the headers of standalone Asio 1.22 or later. Debian has no CMake package.
find_path(Asio_INCLUDE_DIR asio.hpp)
mark_as_advanced(Asio_INCLUDE_DIR)
if(Asio_INCLUDE_DIR)
  file(STRINGS "${Asio_INCLUDE_DIR}/asio/version.hpp" asio_version_line
       REGEX "#define ASIO_VERSION [0-9]+")
  string(REGEX MATCH "[0-9]+" asio_version "${asio_version_line}")
  math(EXPR asio_major "${asio_version} / 100000")
  math(EXPR asio_minor "${asio_version} / 100 % 1000")
  math(EXPR asio_patch "${asio_version} % 100")
  set(Asio_VERSION "${asio_major}.${asio_minor}.${asio_patch}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Asio REQUIRED_VARS Asio_INCLUDE_DIR VERSION_VAR Asio_VERSION)

if(Asio_FOUND AND NOT TARGET Asio::asio)
  add_library(Asio::asio INTERFACE IMPORTED)
  set_target_properties(Asio::asio PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${Asio_INCLUDE_DIR}"
    INTERFACE_COMPILE_DEFINITIONS ASIO_STANDALONE)
endif()
