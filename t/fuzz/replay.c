/*
 * Runs a fuzz target over stored inputs: files, or folders of them. Without libFuzzer, so with any compiler; ends
 * with 1 where there is nothing to run.
 */
#include "fuzz.h"

#include <apr_file_io.h>
#include <apr_strings.h>

static __attribute__((noreturn)) void fail(const char *path)
{
    fprintf(stderr, "replay: cannot read %s\n", path);
    exit(1);
}

static int run_file(apr_pool_t *p, const char *path)
{
    apr_file_t *file;
    apr_finfo_t info;
    apr_size_t len;
    char *octets;

    if (apr_file_open(&file, path, APR_FOPEN_READ | APR_FOPEN_BINARY, APR_OS_DEFAULT, p) != APR_SUCCESS ||
        apr_file_info_get(&info, APR_FINFO_SIZE, file) != APR_SUCCESS) {
        fail(path);
    }
    /* Of exactly that size, so that a sanitizer sees a read beyond it. */
    octets = malloc(info.size != 0 ? (size_t)info.size : 1);
    if (octets == NULL || apr_file_read_full(file, octets, (apr_size_t)info.size, &len) != APR_SUCCESS) {
        fail(path);
    }
    apr_file_close(file);
    LLVMFuzzerTestOneInput((const uint8_t *)octets, len);
    free(octets);
    return 1;
}

static int run(apr_pool_t *p, const char *path)
{
    apr_finfo_t info;
    apr_dir_t *folder;
    int inputs = 0;

    if (apr_stat(&info, path, APR_FINFO_TYPE, p) != APR_SUCCESS) {
        fail(path);
    }
    if (info.filetype != APR_DIR) {
        return run_file(p, path);
    }
    if (apr_dir_open(&folder, path, p) != APR_SUCCESS) {
        fail(path);
    }
    while (apr_dir_read(&info, APR_FINFO_NAME, folder) == APR_SUCCESS) {
        if (info.name[0] != '.') {
            inputs += run_file(p, apr_pstrcat(p, path, "/", info.name, NULL));
        }
    }
    apr_dir_close(folder);
    return inputs;
}

int main(int argc, char **argv)
{
    apr_pool_t *p;
    int inputs = 0;
    int i;

    apr_initialize();
    apr_pool_create(&p, NULL);
    for (i = 1; i < argc; i++) {
        inputs += run(p, argv[i]);
    }
    printf("%s: %d inputs\n", argv[0], inputs);
    apr_terminate();
    return inputs == 0;
}
