# The Debian package: cmake --build --preset release && cpack --config build/release/CPackConfig.cmake
# Its files are those of `cmake --install` with the prefix /usr, and what only a package has: the
# configuration file, the rotation of logs, the system user. Include it after every install().
if(NOT CMAKE_SYSTEM_NAME STREQUAL "Linux")
  return()
endif()
set(debian ${CMAKE_SOURCE_DIR}/conf/debian)

# `cmake --install` leaves these out: they have absolute paths.
install(FILES ${CMAKE_SOURCE_DIR}/conf/spillway.yaml DESTINATION /etc/spillway
  COMPONENT debian EXCLUDE_FROM_ALL)
install(FILES ${debian}/logrotate DESTINATION /etc/logrotate.d RENAME spillway
  COMPONENT debian EXCLUDE_FROM_ALL)
install(FILES ${debian}/user.conf DESTINATION /usr/lib/systemd/system/spillway.service.d
  COMPONENT debian EXCLUDE_FROM_ALL)
install(FILES ${debian}/copyright DESTINATION /usr/share/doc/spillway
  COMPONENT debian EXCLUDE_FROM_ALL)
install(FILES ${debian}/lintian-overrides DESTINATION /usr/share/lintian/overrides RENAME spillway
  COMPONENT debian EXCLUDE_FROM_ALL)
find_program(GZIP gzip)
if(GZIP)
  execute_process(COMMAND ${GZIP} -9nc ${debian}/changelog
    OUTPUT_FILE ${CMAKE_BINARY_DIR}/changelog.Debian.gz)
  install(FILES ${CMAKE_BINARY_DIR}/changelog.Debian.gz DESTINATION /usr/share/doc/spillway
    COMPONENT debian EXCLUDE_FROM_ALL)
endif()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${debian}/changelog)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME spillway)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(SPILLWAY_PACKAGE_MAINTAINER "Spillway maintainers <spillway@example.org>" CACHE STRING
  "Who answers for the Debian package")
set(CPACK_PACKAGE_CONTACT "${SPILLWAY_PACKAGE_MAINTAINER}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "routing proxy for MongoDB with bounded memory")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
"One address for documents that live on many shards: a mongos that keeps its
memory in hand. Replies pass through in pieces, every byte that a peer can
make it hold is counted before it is taken, and memory of cursors whose
clients are gone goes back to the system within seconds.

The shards are servers or replica sets that speak MongoDB's protocol. The
service is not started before it is configured: see spillway(8).")
set(CPACK_DEBIAN_PACKAGE_SECTION database)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "adduser")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "ca-certificates")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "logrotate, openssl")
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA
  ${debian}/postinst ${debian}/prerm ${debian}/postrm ${debian}/conffiles)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
  OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_COMPONENTS_ALL Unspecified debian)
set(CPACK_DEB_COMPONENT_INSTALL OFF)
set(CPACK_INSTALL_CMAKE_PROJECTS
  "${CMAKE_BINARY_DIR};spillway;Unspecified;/" "${CMAKE_BINARY_DIR};spillway;debian;/")
set(CPACK_PRE_BUILD_SCRIPTS ${debian}/staged.cmake)
set(CPACK_POST_BUILD_SCRIPTS ${debian}/packed.cmake)
set(CPACK_SPILLWAY_DEBIAN ${debian})
# Of these the program has only what their headers make.
find_path(BOOST_HEADERS boost/version.hpp REQUIRED)
find_path(CLI11_HEADERS CLI/CLI.hpp REQUIRED)
set(CPACK_SPILLWAY_HEADERS ${BOOST_HEADERS}/boost/version.hpp ${CLI11_HEADERS}/CLI/CLI.hpp)
set(CPACK_OUTPUT_FILE_PREFIX ${CMAKE_BINARY_DIR}/package)
include(CPack)
