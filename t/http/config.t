# What configtest refuses, with file and line, and what it lets pass.
use strict;
use warnings;
use Idem::Test;

my $t = Idem::Test->new(start => 0, config => '');
my $httpd = $t->httpd;
my %dbd = (base => undef,
    none => "\n", foreign => "DBDriver sqlite3\nDBDParams /nowhere/db\n",
    unkept => $httpd->dbd_text($t->pg, 'web') =~ s/DBDPersist On/DBDPersist Off/r);

# A protected place with further lines.
sub place { return join "\n    ", '<Location "/x">', '@AUTH@', 'IdempotencyRoute x', 'IdempotencyTenant server', 'IdempotencyPrincipal user', @_, "\n</Location>\n" }

# Refused, naming the directive and the line that begins with `!`; $words is what else the message says.
sub refused {
    my ($name, $text, $words, %arg) = @_;
    subtest "refused: $name" => sub {
        my @lines = split /\n/, $t->expand($text);
        my ($culprit) = grep { $lines[$_] =~ s/^(\s*)!/$1/ } 0 .. $#lines;
        my ($directive) = $lines[ $culprit // 0 ] =~ /(Idempotency\w+)/;
        my $before = () = $httpd->config_text(%arg, config => '') =~ /\n/g;
        my ($status, $said) = $httpd->configtest(join("\n", @lines), %arg);
        ok($status, 'configtest fails');
        if (defined $culprit) {
            my $line = $before + $culprit;
            like($said, qr/line $line of \S*test\.conf|test\.conf:$line\b/, "file and line $line");
            like($said, qr/\Q$directive\E/, "names $directive");
        }
        like($said, $words, 'and says what is wrong');
        note($said);
    };
}

sub taken {
    my ($name, $text, %arg) = @_;
    my ($status, $said) = $httpd->configtest($t->expand($text), %arg);
    is($status, 0, "taken: $name") or diag($said);
}

# Wrong values, directive by directive.
my @wrong = (
    'IdempotencyRoute', 'IdempotencyRoute x colour=red', 'IdempotencyRoute x revision=', 'IdempotencyRoute x methods=', 'IdempotencyRoute x methods=POST,GET', 'IdempotencyRoute x methods=post',
    'IdempotencyRoute None revision=2', 'IdempotencyRoute "a\x01b"' =~ s/\\x01/\x01/r, 'IdempotencyRoute ' . 'x' x 256, 'IdempotencyRoute "%{HTTP_HOST}"', "IdempotencyRoute caf\xe9",
    'IdempotencyTenant', 'IdempotencyTenant header:X-Tenant', 'IdempotencyTenant env:', 'IdempotencyTenant const:', 'IdempotencyTenant "const:a	b"', 'IdempotencyTenant const:' . 'c' x 256,
    (map { "IdempotencyTenant env:$_" } qw(HTTP_X_TENANT http_x MATCH_SHOP REDIRECT_USER REMOTE_ADDR REMOTE_HOST REMOTE_PORT QUERY_STRING REQUEST_URI PATH_INFO SCRIPT_NAME CONTENT_TYPE SERVER_NAME SSL_TLS_SNI)),
    (map { "IdempotencyPrincipal $_" } 'env:HTTP_AUTHORIZATION', 'ssl:SSL_PROTOCOL', 'ssl:SSL_CLIENT_VERIFY', 'request:body', 'address'),
    'IdempotencyTrustEnv', 'IdempotencyNoIdentity Perhaps', 'IdempotencyMode Sometimes', 'IdempotencyKey Maybe', 'IdempotencyKeySyntax loose',
    'IdempotencyKeyLength 0 10', 'IdempotencyKeyLength 10 9', 'IdempotencyKeyLength 1 256', 'IdempotencyKeyLength x 9', 'IdempotencyKeyLength 1',
    'IdempotencyKeyPattern "(["', 'IdempotencyKeyHeader "a b"', 'IdempotencyKeyHeader Idempotency-Operation-Id', 'IdempotencyKeyHeader Authorization', 'IdempotencyKeyHeader cookie', 'IdempotencyKeyHeader',
    'IdempotencyFingerprint md5', 'IdempotencyFingerprintHost Perhaps', 'IdempotencyFingerprintQuery', 'IdempotencyFingerprintHeaders "a b"',
    'IdempotencyMaxBody 8X', 'IdempotencyMaxBody -1', 'IdempotencyMaxBody', 'IdempotencyBodyMemory many', 'IdempotencyMaxSnapshot 1.5M', 'IdempotencySnapshotBody Some',
    (map { "IdempotencySnapshotHeaders $_" } 'Set-Cookie', 'Date', 'Server', 'Via', 'Connection', 'WWW-Authenticate', 'X-One Transfer-Encoding', '"a b"'),
    'IdempotencyReplayedHeader "a b"', 'IdempotencyReplayedHeader Location', 'IdempotencyReplayedHeader Set-Cookie', 'IdempotencyReplayedHeader idempotency-operation', 'IdempotencyErrorMember Perhaps', 'IdempotencyForwardKey Perhaps',
    'IdempotencyRetention 1w', 'IdempotencyRetention -1s', 'IdempotencyTombstone month', 'IdempotencyReuse Never', 'IdempotencyLease 0s', 'IdempotencyLease 1x', 'IdempotencyMaxRun 0', 'IdempotencyQuiet 0', 'IdempotencyQuiet soon',
    'IdempotencyWait soon', 'IdempotencyWait', 'IdempotencyEffect sometimes', 'IdempotencyDispatchMark Perhaps', 'IdempotencyStatusPath status', 'IdempotencyStatusPath //other.example/', 'IdempotencyServerKey "%{"',
    'IdempotencyPayloadContract /nowhere/contract.json', 'IdempotencyPayloadContract',
    'IdempotencyOutcome', 'IdempotencyOutcome 500', 'IdempotencyOutcome failed', 'IdempotencyOutcome 6xx failed', 'IdempotencyOutcome 99 failed', 'IdempotencyOutcome 500 maybe', 'IdempotencyOutcome 500 failed "expr=%{"',
);
for my $line (@wrong) {
    refused(substr($line, 0, 80) =~ s/[^ -~]/?/gr, place("!$line"), qr/Idempotency/);
}
my @wrong_server = ('IdempotencyStoreFailure Perhaps', 'IdempotencyJournal /nowhere/journal', 'IdempotencyStoreTimeout 0s', 'IdempotencyStoreTimeout soon', 'IdempotencyStorePrepare Perhaps', 'IdempotencyStoreWriters 0', 'IdempotencyStoreWriters -1', 'IdempotencyStoreWriters two', 'IdempotencyWriterEpoch 0', 'IdempotencyWriterEpoch x',
    'IdempotencyDocs /relative', 'IdempotencyDocs https://docs.example/errors#part', 'IdempotencyDocs', 'IdempotencyStore nowhere.example',
    (map { "IdempotencyReplayCache $_" } '', 'Some', 'memcache:localhost', 'dbm:/tmp/cache', 'redis:localhost', 'shmcbx', 'shmcb:run/c(8X)', 'shmcb:run/c(63K)', 'shmcb:run/c(64M)', 'shmcb:run/c(8M', 'shmcb:(', 'shmcb:run/c(-1)', 'shmcb:run/c()'));
for my $line (@wrong_server) {
    refused($line, "!$line\n" . place(), qr/Idempotency/);
}
for my $line ('IdempotencyReplayCache None', 'IdempotencyStoreFailure Open', 'IdempotencyJournal /var/tmp', 'IdempotencyStore x', 'IdempotencyStoreTimeout 1s', 'IdempotencyStorePrepare Off', 'IdempotencyWriterEpoch 2', 'IdempotencyDocs https://docs.example/') {
    refused("$line in a section", place("!$line"), qr/not allowed (?:here|in)/);
}

# Whose key it would be has to be known.
my $tenant = qr/tenant/i;
my $principal = qr/principal/i;
refused('a route without tenant', "<Location /x>\n    !IdempotencyRoute x\n    IdempotencyPrincipal user\n</Location>", $tenant);
refused('a route without principal', "<Location /x>\n    !IdempotencyRoute x\n    IdempotencyTenant server\n</Location>", $principal);
refused('a route of the server without them', "!IdempotencyRoute auto", $tenant);
refused('a directory with a route, without them', "<Directory /srv>\n    !IdempotencyRoute auto\n</Directory>", $tenant);
refused('a principal of const: alone', "<Location /x>\n    IdempotencyRoute x\n    IdempotencyTenant server\n    !IdempotencyPrincipal const:everybody\n</Location>", qr/const/);
refused('a principal that is the server', "<Location /x>\n    IdempotencyRoute x\n    IdempotencyTenant server\n    !IdempotencyPrincipal server const:every\n</Location>", qr/server alone/);
refused('two consts', "<Location /x>\n    IdempotencyRoute x\n    IdempotencyTenant server\n    !IdempotencyPrincipal const:every const:body\n</Location>", qr/const/);
refused('what a place beside it says does not count', "<Location /y>\n    IdempotencyTenant server\n    IdempotencyPrincipal user\n</Location>\n<Location /x>\n    !IdempotencyRoute x\n</Location>", $tenant);
refused('what a place below says does not count', "<Location /x/below>\n    IdempotencyTenant server\n    IdempotencyPrincipal user\n</Location>\n<Location /x>\n    !IdempotencyRoute x\n</Location>", $tenant);
refused('what another host says does not count',
    "<VirtualHost 127.0.0.1:1>\n    IdempotencyTenant server\n    IdempotencyPrincipal user\n</VirtualHost>\n<VirtualHost 127.0.0.1:2>\n    <Location /x>\n        !IdempotencyRoute x\n    </Location>\n</VirtualHost>", $tenant);
taken('const: beside another source', place('IdempotencyPrincipal const:api user'));
taken('the server says it', "IdempotencyTenant server\nIdempotencyPrincipal user\n<Location /x>\n    IdempotencyRoute x\n</Location>");
taken('the host says it', "<VirtualHost 127.0.0.1:1>\n    IdempotencyTenant server\n    IdempotencyPrincipal user\n    <Location /x>\n        IdempotencyRoute x\n    </Location>\n</VirtualHost>");
taken('a place above says it', "<Location /x>\n    IdempotencyTenant server\n    IdempotencyPrincipal user\n</Location>\n<Location /x/y>\n    IdempotencyRoute x\n</Location>");
taken('a LocationMatch may say it', "<LocationMatch \"^/.*\">\n    IdempotencyTenant server\n    IdempotencyPrincipal user\n</LocationMatch>\n<Location /x/y>\n    IdempotencyRoute x\n</Location>");
taken('a Directory may say it', "<Directory /srv>\n    IdempotencyTenant server\n    IdempotencyPrincipal user\n</Directory>\n<Location /x/y>\n    IdempotencyRoute x\n</Location>");
taken('an If may say it', "<If \"true\">\n    IdempotencyTenant server\n    IdempotencyPrincipal user\n</If>\n<Location /x/y>\n    IdempotencyRoute x\n</Location>");
taken('half of it here, half there', "<Location /x>\n    IdempotencyTenant server\n</Location>\n<Location /x/y>\n    IdempotencyRoute x\n    IdempotencyPrincipal user\n</Location>");
taken('a route None needs nobody', "<Location /x>\n    IdempotencyRoute None\n</Location>");

# Where the records are kept.
my $route = place() =~ s/IdempotencyRoute/!IdempotencyRoute/r;
my $driver = qr/DBDriver/;
refused('no DBDriver', $route, $driver, dbd => $dbd{none});
refused('a foreign DBDriver', $route, $driver, dbd => $dbd{foreign});
refused('connections that are not kept', $route, qr/DBDPersist/, dbd => $dbd{unkept});
refused('no mod_dbd at all', $route, qr/mod_dbd|DBDriver/, pg => undef);
taken('none of it where nothing is protected', "Alias /x /y\n", dbd => $dbd{none});
taken('the registry of another host', "ServerName main.example\n<VirtualHost 127.0.0.1:1>\n    ServerName api.example\n    IdempotencyStore registry.example\n" . place() . "</VirtualHost>\n"
    . "<VirtualHost 127.0.0.1:2>\n    ServerName registry.example\n    " . $httpd->dbd_text($t->pg, 'web') . "</VirtualHost>", dbd => $dbd{none});

# Everything at once, as an operator may write it.
refused('more writers than connections', "!IdempotencyStoreWriters 99\n" . place(), qr/DBDMax/);
refused('a cache whose module is not loaded', "!IdempotencyReplayCache shmcb\n" . place(), qr/mod_socache_shmcb/, without => ['socache_shmcb']);
taken("a cache: $_", "IdempotencyReplayCache $_\n" . place()) for 'shmcb', 'SHMCB:', 'shmcb:(64K)', 'shmcb:run/replay(63M)', 'None';
taken('as many writers as connections', "IdempotencyStoreWriters 2\n" . place());
taken('all directives', "IdempotencyStoreTimeout 1500ms\nIdempotencyStorePrepare Off\nIdempotencyWriterEpoch 1\nIdempotencyDocs https://docs.example/errors\n" . place(
    'IdempotencyRoute "orders of %{MATCH_SHOP}" revision=3 methods=POST,PUT,PATCH', 'IdempotencyTenant env:OIDC_CLAIM_tenant const:eu', 'IdempotencyPrincipal env:OIDC_CLAIM_iss env:OIDC_CLAIM_sub',
    'IdempotencyPrincipal ssl:SSL_CLIENT_S_DN note:who user', 'IdempotencyTrustEnv GATEWAY_TENANT', 'IdempotencyNoIdentity Reject', 'IdempotencyMode Enforce', 'IdempotencyKey Optional',
    'IdempotencyKeySyntax strict', 'IdempotencyKeyLength 16 64', 'IdempotencyKeyPattern "^[a-z0-9-]+$"', 'IdempotencyKeyHeader X-Idempotency-Key', 'IdempotencyFingerprint raw',
    'IdempotencyFingerprintHost Off', 'IdempotencyFingerprintQuery page size', 'IdempotencyFingerprintHeaders X-Version', 'IdempotencyMaxBody 1M', 'IdempotencyBodyMemory 64K',
    'IdempotencyMaxSnapshot 2M', 'IdempotencySnapshotBody On', 'IdempotencySnapshotHeaders X-Order', 'IdempotencyReplayedHeader X-Again', 'IdempotencyErrorMember Off', 'IdempotencyForwardKey Off',
    'IdempotencyRetention 7d', 'IdempotencyTombstone 90d', 'IdempotencyReuse Allow', 'IdempotencyLease 30s', 'IdempotencyMaxRun 10m', 'IdempotencyQuiet 1h', 'IdempotencyOutcome 5xx failed', 'IdempotencyOutcome 302 303 rejected',
    'IdempotencyOutcome 503 rejected "expr=-n %{resp:Retry-After}"'));
taken('switched off', place('IdempotencyMode Off'));

subtest 'what virtual hosts inherit is said once' => sub {
    my ($status, $said) = $httpd->configtest($t->expand(protected({ who => 'IdempotencyPrincipal user' }, '/x', 'x')
        . join '', map { "<VirtualHost *:1>\nServerName $_.example\n</VirtualHost>\n" } qw(a b)));
    isnt($status, 0, 'refused');
    is(scalar(() = $said =~ /IDEM1101/g), 1, 'in one line') or diag($said);
};

subtest 'never in .htaccess' => sub {
    $httpd->{config} = "<Directory \"$t->{root}/htdocs\">\n    AllowOverride All\n</Directory>\n";
    spew("$t->{root}/htdocs/.htaccess", "IdempotencyMode Off\n", 0644);
    $httpd->start;
    is($t->client->get('/')->status, 500, 'refused');
    $httpd->expect_log(qr/IdempotencyMode not allowed (?:here|in)/);
};

$t->finish;
