# Defines Protozero::Protozero: the headers of protozero. Neither the project nor Debian has a CMake package.
find_path(Protozero_INCLUDE_DIR protozero/pbf_writer.hpp)
mark_as_advanced(Protozero_INCLUDE_DIR)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Protozero REQUIRED_VARS Protozero_INCLUDE_DIR)

if(Protozero_FOUND AND NOT TARGET Protozero::Protozero)
  add_library(Protozero::Protozero INTERFACE IMPORTED)
  set_target_properties(Protozero::Protozero PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${Protozero_INCLUDE_DIR}")
endif()
