# Under prefork: mod_cgi and mod_php, whose endings are other than those of mod_cgid and FPM. A child that dies with its
# script takes the connection along; its record tells the retry so once the lease is over.
use strict;
use warnings;
use Idem::Test;
use MIME::Base64 ();

my $t = Idem::Test->new(mpm => 'prefork', backends => [qw(cgi php)], modules => ['lua'], config => sub {
    my ($t) = @_;
    spew($t->root . '/real.lua', "function real(r)\n    r.user = r.headers_in['X-Real']\n    return apache2.OK\nend\n", 0644);
    $t->backend->script('nph-x.cgi', '1 while read STDIN, my $b, 65536; Idem::App::note($root, event => "effect", key => "nph"); print "HTTP/1.0 201 Made\r\nContent-Type: text/plain\r\n\r\nraw\n";');
    $t->backend->script('sorry.cgi', 'print "Status: 200\nContent-Type: text/plain\n\nsorry\n";');
    return join '', protected('/cgi', 'cgi'), protected('/cgi_doc', 'cgi.doc', 'ErrorDocument 500 /sorry'), "ScriptAlias \"/sorry\" \"$t->{root}/app/cgi/sorry.cgi\"\n",
        protected({ by => 'php' }, '/php', 'php', 'IdempotencyLease 1s'),
        Idem::Backend::place('php', '/real') . join("\n", '<Location "/real">', 'AuthType Other', 'AuthName x', "LuaHookCheckUserID $t->{root}/real.lua real early",
            'Require valid-user', 'IdempotencyRoute real', 'IdempotencyTenant server', 'IdempotencyPrincipal user', "</Location>", "CustomLog logs/users \"%U %u\"\n"),
        "ScriptAlias \"/nph\" \"$t->{root}/app/cgi/nph-x.cgi\"\n", protected({ by => 'none' }, '/nph', 'nph');
});
my $c = $t->client;

sub state { my ($key) = @_; return ($t->records("idem_key = '$key'"))[0]{status} // 'no record' }

sub unknown {
    my ($name, $target, %behave) = @_;
    my $key = fresh_key();
    my $first;
    $t->backend->behave(%behave);
    ran($t, 1, $name, sub {
        $first = $c->post($target, key => $key, body => '{}');
        $t->backend->behave;
        my $again;
        ok(wait_for(sub { $again = $c->post($target, key => $key, body => '{}'); ($again->json->{type} // '') =~ /outcome-unknown/ }), "$name: a retry is told");
        problem($again, 'outcome-unknown', operation => 1);
        is(state($key), 'UNKNOWN', "$name: UNKNOWN");
    });
    return $first;
}

my %thousand = (size => 1000, length => 1000);
subtest "mod_cgi, $_" => sub { my $first = unknown("killed, $_", '/cgi', %thousand, die => $_); cmp_ok($first->status, '>=', 500, 'no success') } for qw(before headers body);
subtest 'mod_cgi behind an ErrorDocument that says 200' => sub { is(unknown('exit', '/cgi_doc', exit => 1)->status, 200, 'as the page says') };
subtest 'mod_cgi, nph-' => sub { unknown('nph', '/nph') };
subtest "mod_php, $_" => sub { is(unknown("the child dies, $_", '/php/x', %thousand, die => $_), undef, 'the connection breaks') } for qw(before body);
subtest 'mod_php answers' => sub {
    for my $status (200, 404, 500) {
        my $key = fresh_key();
        $t->backend->behave(status => $status);
        ran($t, 1, $status, sub {
            my ($first, $again) = map { $c->post('/php/x', key => $key, body => '{}') } 1 .. 2;
            is($first->status, $status, "$status: the first client sees it");
            $status == 500 ? problem($again, 'outcome-unknown') : is_replay($again, $first, $status);
        });
        $t->backend->behave;
    }
};
# mod_php takes the user's name from the Authorization field when it runs
subtest 'mod_php changes who the user is' => sub {
    my @sent = ('/real/x', key => 'k', body => '{}', user => undef, headers => [ 'X-Real' => 'alice', Authorization => 'Basic ' . MIME::Base64::encode_base64('mallory:x', '') ]);
    my $first = $c->post(@sent);
    is($first->status, 200, 'runs');
    is(($t->records("route = 'real'"))[0]{principal_id}, 'alice', 'too late: the principal is whom authentication has named');
    ok(wait_for(sub { (eval { slurp($t->root . '/logs/users') } // '') =~ m{^/real/x mallory$}m }), 'it does') or diag(slurp($t->root . '/logs/users'));
    is_replay($c->post(@sent), $first, 'the same caller');
    my @other = @sent;
    $other[-1] = [ 'X-Real' => 'bob', @{ $sent[-1] }[ 2, 3 ] ];
    ran($t, 1, 'another caller with the same field', sub { is($c->post(@other)->status, 200, 'runs') });
};
$t->httpd->expect_log(qr/IDEM0701/, qr/IDEM0509/, qr/IDEM0401/);
$t->httpd->allow_log(qr/exit signal Killed|End of script output|Premature end|AH01215|IDEM/);
$t->finish;
