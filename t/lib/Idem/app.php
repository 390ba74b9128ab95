<?php
// The same application as Idem/App.pm, for PHP: parameters and `effects` as said there.
// status type body size octets echo header outcome sleep hold exit late; die=before|body

function parameters(string $root): array {
    $all = [];
    foreach ([@file_get_contents("$root/behave") ?: '', $_SERVER['QUERY_STRING'] ?? ''] as $source) {
        $here = [];
        foreach (preg_split('/[&\n]/', $source, -1, PREG_SPLIT_NO_EMPTY) as $pair) {
            [$name, $value] = array_map('urldecode', explode('=', $pair, 2) + [1 => '']);
            $here[$name][] = $value;
        }
        $all = array_merge($all, $here);
    }
    return $all;
}

function note(string $root, array $what): void {
    file_put_contents("$root/effects", json_encode($what, JSON_UNESCAPED_SLASHES) . "\n", FILE_APPEND | LOCK_EX);
}

$root = '@ROOT@';
$p = parameters($root);
$one = fn (string $name) => isset($p[$name]) ? end($p[$name]) : null;
$body = file_get_contents('php://input');
$facts = [
    'id' => 'id_' . bin2hex(random_bytes(10)), 'method' => $_SERVER['REQUEST_METHOD'],
    'path' => strtok($_SERVER['REQUEST_URI'], '?'), 'query' => $_SERVER['QUERY_STRING'] ?? '',
    'length' => strlen($body), 'sha256' => hash('sha256', $body), 'announced' => $_SERVER['CONTENT_LENGTH'] ?? null,
    'user' => $_SERVER['REMOTE_USER'] ?? $_SERVER['REDIRECT_REMOTE_USER'] ?? null,
    'key' => $_SERVER['HTTP_IDEMPOTENCY_KEY'] ?? null, 'pid' => getmypid(),
];
if (!$one('late')) {
    note($root, ['event' => 'effect'] + $facts);
}
if ($one('hold')) {
    for ($until = microtime(true) + 30; !file_exists("$root/release") && microtime(true) < $until; usleep(20000)) {
        clearstatcache();
    }
}
if ($one('sleep')) {
    usleep((int) (1e6 * (float) $one('sleep')));
}
if ($one('die') === 'before') {
    posix_kill(getmypid(), 9);
}
$shown = array_filter($_SERVER, fn ($name) => preg_match('/^(REDIRECT_)*(IDEMPOTENCY|HTTP_|REMOTE_USER|PATH_INFO|REQUEST_URI|CONTENT_)/', $name), ARRAY_FILTER_USE_KEY);
$content = $one('size') !== null ? substr(implode('', array_map(fn ($n) => sprintf("%07d\n", $n), range(0, intdiv((int) $one('size'), 8)))), 0, (int) $one('size'))
    : ($one('echo') !== null ? $body
    : ($one('octets') !== null ? implode('', array_map('chr', range(0, 255)))
    : ($one('body') ?? json_encode($facts + ['env' => $shown]))));
header('Content-Type: ' . ($one('type') ?? 'application/json'));
foreach ($p['header'] ?? [] as $line) {
    header($line, false);
}
if ($one('outcome') !== null) {
    header('Idempotency-Outcome: ' . $one('outcome'));
}
// Behind header(), which makes a 302 of a Location.
http_response_code((int) ($one('status') ?? 200));
if ($one('die') === 'body') {
    echo substr($content, 0, intdiv(strlen($content), 2));
    flush();
    posix_kill(getmypid(), 9);
}
echo $content;
if ($one('late')) {
    note($root, ['event' => 'effect'] + $facts);
}
note($root, ['event' => 'end', 'id' => $facts['id']]);
