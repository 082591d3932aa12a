# Run by cpack between the installation into its folder and the package: writes the list of what the program is made of,
# and gives all files the time of the changelog. So the same sources give the same bytes, wherever and whenever.
set(root "${CPACK_TEMPORARY_DIRECTORY}")
execute_process(COMMAND dpkg-parsechangelog -l "${CPACK_SPILLWAY_DEBIAN}/changelog" -S Timestamp
  OUTPUT_VARIABLE epoch OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
set(ENV{SOURCE_DATE_EPOCH} ${epoch})  # for the archives' own entries
list(TRANSFORM CPACK_SPILLWAY_HEADERS PREPEND "--header=" OUTPUT_VARIABLE headers)
execute_process(
  COMMAND "${CPACK_SPILLWAY_DEBIAN}/sbom.py" --version ${CPACK_PACKAGE_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}
    --time ${epoch} ${headers} "${root}/usr/bin/spillway"
  OUTPUT_FILE "${root}/usr/share/doc/spillway/spillway.spdx.json" COMMAND_ERROR_IS_FATAL ANY)
file(CHMOD "${root}/usr/share/doc/spillway/spillway.spdx.json"
  PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
execute_process(COMMAND find "${root}" -exec touch --no-dereference "--date=@${epoch}" {} +
  COMMAND_ERROR_IS_FATAL ANY)
# Whatever the umask: cpack makes folders by it.
execute_process(COMMAND find "${root}" -type d -exec chmod 755 {} + COMMAND_ERROR_IS_FATAL ANY)
