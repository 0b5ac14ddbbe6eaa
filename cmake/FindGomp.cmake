# Defines Gomp::Gomp, the OpenMP runtime that oneDNN uses. The device sets its number of threads, so
# every compiler must link this runtime: clang's libomp would be a second thread pool.
find_library(Gomp_LIBRARY NAMES libgomp.so.1 gomp)
mark_as_advanced(Gomp_LIBRARY)

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(Gomp REQUIRED_VARS Gomp_LIBRARY)

if(Gomp_FOUND AND NOT TARGET Gomp::Gomp)
  add_library(Gomp::Gomp UNKNOWN IMPORTED)
  set_target_properties(Gomp::Gomp PROPERTIES IMPORTED_LOCATION "${Gomp_LIBRARY}")
endif()
